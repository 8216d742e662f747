package report

// style is that of drawings, on a page and alone. Colours differ in brightness too.
const style = `:root { --back: #fff; --panel: #f6f7f9; --text: #1b1f24; --faint: #5b6470; --rule: #d5dae0;
  --s1: #0b62a8; --s2: #7a8791; --s3: #c8401f; --s4: #8a4fbf; --s5: #00806a; --s6: #a87400; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171b; --panel: #1d2127; --text: #e6e9ec; --faint: #9aa5b1; --rule: #3a414a;
    --s1: #5fb3f3; --s2: #8d99a5; --s3: #ff8160; --s4: #c79bf2; --s5: #3fcfb0; --s6: #e3b341; }
}
svg text { fill: var(--faint); font-size: 12px; } .x { text-anchor: middle; } .y { text-anchor: end; }
path { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.grid { stroke: var(--rule); stroke-width: 1; } .dash { stroke-dasharray: 6 5; }
.s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); } .s3 { stroke: var(--s3); }
.s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); } .s6 { stroke: var(--s6); }`

package conf

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// listing writes the tree as one "key line" per node, in the order of keys.
func listing(n *node, key string) []string {
	var out []string
	for name, c := range n.table {
		out = append(out, fmt.Sprintf("%s %d", join(key, name), c.line))
		out = append(out, listing(c, join(key, name))...)
	}
	for i, c := range n.items {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		out = append(out, fmt.Sprintf("%s %d", at, c.line))
		out = append(out, listing(c, at)...)
	}
	slices.Sort(out)
	return out
}

func TestLines(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", ""},
		{"plain", "a = 1\n\nb = 2", "a 1, b 3"},
		{"comments", "# c = 1\na = 1 # b = 2\n  # d\nb = \"x # y\" # z\n", "a 2, b 4"},
		{"carriage returns", "a = 1\r\n# x\r\nb = 2\r\n", "a 1, b 3"},
		{"byte order mark", "\xef\xbb\xbfa = 1", "a 1"},
		{"table", "[t]\na = 1\n[t.u]\nb = 2", "t 1, t.a 2, t.u 3, t.u.b 4"},
		{"blanks in headers", "[ t . u ] # x\na=1", "t 1, t.u 1, t.u.a 2"},
		{"dotted keys", "a.b = 1\na . c = 2", "a 1, a.b 1, a.c 2"},
		{"quoted keys", "'a.b' = 1\n\"c\\td\\u0041\" = 2\n\"\" = 3\ne.\"]\" = 4",
			`"" 3, "a.b" 1, "c\tdA" 2, e 4, e."]" 4`},
		{"inline table", "x = 1\nt = { size = 1, queue.a = 2, }", "t 2, t.queue 2, t.queue.a 2, t.size 2, x 1"},
		{"inline table over lines", "t = {\n  a = 1, # }\n  b = \"}\" }\nc = 1", "c 4, t 1, t.a 2, t.b 3"},
		{"array", "a = [\n 1, # ]\n \"]\",\n]\nb = 1", "a 1, a[1] 2, a[2] 3, b 5"},
		{"array of tables inline", "a = [{ b = 1 },\n { b = 2 }]", "a 1, a[1] 1, a[1].b 1, a[2] 2, a[2].b 2"},
		{"array of arrays", "a = [[1], [\n2]]", "a 1, a[1] 1, a[1][1] 1, a[2] 1, a[2][1] 2"},
		{"array tables", "[[s]]\na = 1\n[s.p]\nb = 1\n[[s]]\n[s.p]\nb = 2\nc = 3",
			"s 1, s[1] 1, s[1].a 2, s[1].p 3, s[1].p.b 4, s[2] 5, s[2].p 6, s[2].p.b 7, s[2].p.c 8"},
		{"array table in array table", "[[s]]\n[[s.t]]\n[[s.t]]\na = 1\n[[s]]\n[[s.t]]",
			"s 1, s[1] 1, s[1].t 2, s[1].t[1] 2, s[1].t[2] 3, s[1].t[2].a 4, s[2] 5, s[2].t 6, s[2].t[1] 6"},
		{"header after its child", "[a.b]\nx = 1\n[a]\ny = 2", "a 1, a.b 1, a.b.x 2, a.y 4"},
		{"multi-line string", "a = \"\"\"\nb = 1\n\\\"\"\"\nc = 1\"\"\"\"\"\nd = 1", "a 1, d 5"},
		{"multi-line literal", "a = '''\n[b]\n''\\'''\nd = 1", "a 1, d 4"},
		{"empty strings", "a = \"\"\nb = ''\nc = \"\"\"\"\"\"\nd = ''''''\ne = 1", "a 1, b 2, c 3, d 4, e 5"},
		{"escaped quotes", `a = "\"b = 1"` + "\nc = '\\'\nd = \"\\\\\"\ne = 1", "a 1, c 2, d 3, e 4"},
		{"scalars", "a = 1979-05-27 07:32:00\nb = 0x1F\nc = 1e3\nd = inf\ne = true", "a 1, b 2, c 3, d 4, e 5"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := toml.Decode(test.text, new(map[string]any)); err != nil {
				t.Fatalf("not TOML: %v", err)
			}
			if got := strings.Join(listing(scanLines(test.text), ""), ", "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			checkLines(t, test.text)
		})
	}
}

// checkLines compares the scanner with the library, on text that the library accepts: each key it reports has a
// node, each value of its tree has one too, and there are no others. More nodes than values are no error: the library loses values of odd
// texts, as of ”."" = [[{}]].
func checkLines(t *testing.T, text string) {
	t.Helper()
	var tree map[string]any
	meta, err := toml.Decode(text, &tree)
	root := scanLines(text) // on any text: it has to end
	if err != nil {
		return
	}
	last := strings.Count(text, "\n") + 1
	trusted := true
	for _, key := range meta.Keys() {
		if !reachable(root, key) {
			t.Errorf("key %s has no line", key)
		}
		// The library loses a level of arrays under empty keys: ''."" = [[{}]] is to it what ''."" = [{}] is.
		trusted = trusted && !slices.Contains(key, "")
	}
	if trusted {
		compareShape(t, root, tree, "", last)
	}
}

// reachable follows a key that has no indices through whichever elements of arrays have it.
func reachable(n *node, key []string) bool {
	if len(key) == 0 {
		return true
	}
	if c, ok := n.table[key[0]]; ok && reachable(c, key[1:]) {
		return true
	}
	return slices.ContainsFunc(n.items, func(item *node) bool { return reachable(item, key) })
}

func compareShape(t *testing.T, n *node, value any, key string, last int) {
	t.Helper()
	if n.line < 1 || n.line > last {
		t.Errorf("%s is on line %d of %d", key, n.line, last)
	}
	var elements []any
	table, _ := value.(map[string]any)
	switch v := value.(type) {
	case []any:
		elements = v
	case []map[string]any:
		for _, m := range v {
			elements = append(elements, m)
		}
	}
	if len(n.table) != len(table) || len(n.items) != len(elements) {
		t.Errorf("%s: %d keys and %d elements found, there are %d and %d", key, len(n.table), len(n.items), len(table), len(elements))
		return
	}
	for name, v := range table {
		if c, ok := n.table[name]; ok {
			compareShape(t, c, v, join(key, name), last)
		} else {
			t.Errorf("%s has no line", join(key, name))
		}
	}
	for i, v := range elements {
		compareShape(t, n.items[i], v, fmt.Sprintf("%s[%d]", key, i+1), last)
	}
}

func FuzzLines(f *testing.F) {
	f.Add(string(Annotated))
	f.Add("[[s]]\n'a.b'.\"c\\n\" = [[{ x.y = 1 }], [\"\"\"\n\"\"\"\"\", '']] # z\n[s.t]\n")
	f.Add("\xef\xbb\xbf[a.b]\r\nc = { d = [\n], e = 'f' }\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		checkLines(t, text)
	})
}

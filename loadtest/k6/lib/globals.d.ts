/** k6 has it, its types do not. */
declare const console: {
  error(...values: unknown[]): void;
};

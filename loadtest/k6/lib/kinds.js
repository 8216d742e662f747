// The kinds of requests that there are, and how one is picked.

/**
 * @typedef {object} Kind
 * @property {string} name
 * @property {'chat' | 'completions' | 'generate' | 'images'} form
 * @property {boolean} stream
 */

/** @typedef {{ kind: Kind, weight: number }[]} Weights */

const forms = /** @type {const} */ (['chat', 'completions', 'generate', 'images']);

/** @type {Kind[]} */
export const kinds = forms.flatMap((form) => [
  { name: form, form, stream: false },
  { name: `${form}-stream`, form, stream: true },
]);

/**
 * Reads "chat=3,images-stream=1".
 * @param {string} text
 * @returns {Weights}
 */
export function parseWeights(text) {
  const weights = text.split(',').map((part) => {
    const [name, number] = part.trim().split('=');
    const kind = kinds.find((k) => k.name === name);
    const weight = Number(number);
    if (!kind || !(weight >= 0 && weight < Infinity)) {
      throw new Error(`weight "${part}": it is as in chat=3, and the kinds are ${kinds.map((k) => k.name).join(', ')}`);
    }
    return { kind, weight };
  }).filter((w) => w.weight > 0);
  if (weights.length === 0) {
    throw new Error('there is no weight above 0');
  }
  return weights;
}

/**
 * Picks a kind by chance.
 * @param {Weights} weights
 * @returns {Kind}
 */
export function pick(weights) {
  let rest = Math.random() * weights.reduce((sum, w) => sum + w.weight, 0);
  for (const { kind, weight } of weights) {
    rest -= weight;
    if (rest < 0) {
      return kind;
    }
  }
  return /** @type {Weights[number]} */ (weights[weights.length - 1]).kind; // what rounding has left
}

// Most scripts are the same but for the requests that they send: a steady load.

import { bodyMaker } from './bodies.js';
import { pick } from './kinds.js';
import { bounds, findModel, optionsOf, steady } from './load.js';
import { checkGood, sender } from './requests.js';
import { summarize } from './summary.js';

/**
 * What a script with a steady load exports.
 * @param {string} name of the script
 * @param {import('./settings.js').Settings} settings
 * @param {import('./kinds.js').Weights} weights
 */
export function steadyLoad(name, settings, weights) {
  const send = sender(settings, bodyMaker(settings));
  return {
    options: optionsOf(weights, { load: steady(settings) }, bounds(settings)),
    setup: () => findModel(settings),
    /** @param {string} model */
    iterate: (model) => {
      const kind = pick(weights);
      checkGood(send(kind, model), kind);
    },
    /** @param {import('./summary.js').Data} data */
    handleSummary: (data) => summarize(name, settings, data),
  };
}

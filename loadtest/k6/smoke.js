// One request of each kind, one after the other: does it work at all?

import exec from 'k6/execution';
import { bodyMaker } from './lib/bodies.js';
import { kinds } from './lib/kinds.js';
import { bounds, findModel, optionsOf, seconds } from './lib/load.js';
import { checkGood, sender } from './lib/requests.js';
import { readSettings } from './lib/settings.js';
import { summarize } from './lib/summary.js';

const settings = readSettings({ LOAD_MAX_FAILED: '0', LOAD_TIMEOUT: '30s' });
const send = sender(settings, bodyMaker(settings));

export const options = optionsOf(kinds.map((kind) => ({ kind, weight: 1 })), {
  each: {
    executor: 'shared-iterations',
    vus: 1,
    iterations: kinds.length,
    maxDuration: seconds(settings.timeout * kinds.length),
  },
}, { ...bounds(settings), checks: ['rate==1'] });

export function setup() {
  return findModel(settings);
}

/** @param {string} model */
export default function (model) {
  const kind = kinds[exec.scenario.iterationInTest % kinds.length];
  if (kind) {
    checkGood(send(kind, model), kind);
  }
}

/** @param {import('./lib/summary.js').Data} data */
export function handleSummary(data) {
  return summarize('smoke.js', settings, data);
}

// Raises the rate in steps, each held for a while, and names the knee.

import exec from 'k6/execution';
import { bodyMaker } from './lib/bodies.js';
import { pick } from './lib/kinds.js';
import { judge, kneeSummary, readSteps, stepName } from './lib/knee.js';
import { findModel, optionsOf, perMinute, seconds } from './lib/load.js';
import { sender } from './lib/requests.js';
import { readSettings } from './lib/settings.js';
import { summarize } from './lib/summary.js';

// One kind alone by default: the times of different kinds say nothing together.
const settings = readSettings({ LOAD_WEIGHTS: 'chat-stream=1', LOAD_VUS: '200' });
const { steps, startRate, stepRate, stepDuration } = settings;
const send = sender(settings, bodyMaker(settings));
const rates = Array.from({ length: steps }, (_, i) => startRate + i * stepRate);

export const options = optionsOf(settings.weights, {
  ramp: {
    executor: 'ramping-arrival-rate',
    startRate: perMinute(startRate),
    timeUnit: '1m',
    preAllocatedVUs: settings.vus,
    maxVUs: settings.vus,
    gracefulStop: seconds(settings.timeout),
    stages: rates.flatMap((rate) => [
      { target: perMinute(rate), duration: '0s' }, // at once
      { target: perMinute(rate), duration: seconds(stepDuration) },
    ]),
  },
}, {
  ...Object.fromEntries(rates.flatMap((_, index) => ['answers', 'not_ok', 'first_byte']
    .map((metric) => [`coordinator_${metric}{step:${stepName(index)}}`, []]))),
  // What is over its limit is told by the steps; a cluster that is down is left alone.
  coordinator_not_ok: [{ threshold: 'rate<0.5', abortOnFail: true, delayAbortEval: '10s' }],
});

export function setup() {
  return findModel(settings);
}

/** @param {string} model */
export default function (model) {
  const step = Math.floor((Date.now() - exec.scenario.startTime) / 1000 / stepDuration);
  send(pick(settings.weights), model, { step: stepName(Math.min(step, steps - 1)) });
}

/** @param {import('./lib/summary.js').Data} data */
export function handleSummary(data) {
  const judged = judge(readSteps(data, rates, stepDuration), { factor: settings.kneeFactor, maxFailed: settings.maxFailed });
  return summarize('ramp.js', settings, data, kneeSummary(judged));
}

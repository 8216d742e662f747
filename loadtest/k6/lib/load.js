// What the scripts have in common: scenarios that end, thresholds, and the model.

import http from 'k6/http';
import exec from 'k6/execution';
import { codes, outcomes, requestHeaders } from './requests.js';

/** @typedef {import('./settings.js').Settings} Settings */
/** @typedef {import('k6/options').Scenario} Scenario */
/** @typedef {Record<string, string[] | import('k6/options').ObjectThreshold[]>} Thresholds */

/** @param {number} s */
export const seconds = (s) => `${Math.ceil(s * 1000)}ms`;

/**
 * k6 wants whole numbers: a rate is given for a minute.
 * @param {number} rate of a second
 */
export const perMinute = (rate) => Math.max(1, Math.round(rate * 60));

/**
 * An open loop: requests begin at a steady rate, however long answers take, as
 * those of many clients do. What has begun may end.
 * @param {Settings} s
 * @returns {import('k6/options').ConstantArrivalRateScenario}
 */
export function steady(s) {
  return {
    executor: 'constant-arrival-rate',
    rate: perMinute(s.rate),
    timeUnit: '1m',
    duration: seconds(s.duration),
    preAllocatedVUs: s.vus,
    maxVUs: s.vus,
    gracefulStop: seconds(s.timeout),
  };
}

/**
 * The options of a script.
 * @param {import('./kinds.js').Weights} weights of the kinds that it sends
 * @param {Record<string, Scenario>} scenarios
 * @param {Thresholds} thresholds
 * @returns {import('k6/options').Options}
 */
export function optionsOf(weights, scenarios, thresholds) {
  return {
    scenarios,
    thresholds: { ...counted(weights), ...thresholds },
    summaryTrendStats: ['count', 'avg', 'min', 'med', 'p(90)', 'p(99)', 'p(99.9)', 'max'],
    setupTimeout: '60s',
    userAgent: 'coordinator-loadtest',
  };
}

/**
 * What a load must meet: few failures, the time to the first byte if there is a
 * bound, and that k6 could begin every request on time.
 * @param {Settings} s
 * @returns {Thresholds}
 */
export function bounds(s) {
  return {
    coordinator_not_ok: [`rate<=${s.maxFailed}`],
    dropped_iterations: ['count<1'],
    ...(s.p99 > 0 && { coordinator_first_byte: [`p(99)<=${s.p99}`] }),
  };
}

/**
 * k6 keeps figures of a tag's values for the summary only if there is a threshold
 * that names them, be it an empty one.
 * @param {import('./kinds.js').Weights} weights
 * @returns {Thresholds}
 */
function counted(weights) {
  const names = [
    ...outcomes.map((outcome) => `coordinator_answers{outcome:${outcome}}`),
    ...codes.map((code) => `coordinator_errors{code:${code}}`),
    ...weights.flatMap(({ kind }) => [
      `coordinator_first_byte{kind:${kind.name}}`,
      `coordinator_total{kind:${kind.name}}`,
    ]),
  ];
  return Object.fromEntries(names.map((name) => [name, []]));
}

/**
 * For setup: the model to ask for. A run whose coordinator does not answer ends
 * here.
 * @param {Settings} s
 * @returns {string}
 */
export function findModel(s) {
  if (s.model) {
    return s.model;
  }
  const response = http.get(`${s.url}/v1/models`, { headers: requestHeaders(s), timeout: 10_000 });
  if (response.status !== 200) {
    return stop(`GET ${s.url}/v1/models: ${response.error || response.status}; set LOAD_URL, or LOAD_MODEL if it has no such route`);
  }
  const id = response.json('data.0.id');
  return typeof id === 'string' ? id : stop(`${s.url}/v1/models names no model: set LOAD_MODEL`);
}

/**
 * Ends the run.
 * @param {string} why
 * @returns {never}
 */
export function stop(why) {
  exec.test.abort(why);
  throw new Error(why); // abort does not return; the type checker does not know
}

// The knee: the highest rate at which answers still come about as fast as they
// do with little load, and do not fail.

import { count, ms, table, value } from './summary.js';

/**
 * @typedef {object} Step
 * @property {number} rate that was asked, of a second
 * @property {number} seconds
 * @property {number} begun
 * @property {number} ok
 * @property {number} notOk share of what was begun
 * @property {number} p50 ms to the first byte
 * @property {number} p99
 */

/**
 * @typedef {object} Limits
 * @property {number} factor by which p99 may grow over that of the first step
 * @property {number} maxFailed
 */

/** @typedef {Step & { over: string }} Judged "" is not over */

/** @param {number} index */
export const stepName = (index) => String(index + 1).padStart(2, '0');

/**
 * Reads the steps that were run to their end.
 * @param {import('./summary.js').Data} data
 * @param {number[]} rates
 * @param {number} seconds
 * @returns {Step[]}
 */
export function readSteps(data, rates, seconds) {
  const ended = Math.floor(data.state.testRunDurationMs / 1000 / seconds);
  return rates.slice(0, ended).map((rate, index) => {
    const of = (/** @type {string} */ metric) => `${metric}{step:${stepName(index)}}`;
    return {
      rate,
      seconds,
      begun: count(data, of('coordinator_answers')),
      ok: count(data, of('coordinator_first_byte')),
      notOk: value(data, of('coordinator_not_ok'), 'rate'),
      p50: value(data, of('coordinator_first_byte'), 'med'),
      p99: value(data, of('coordinator_first_byte'), 'p(99)'),
    };
  });
}

/**
 * Says of each step whether, and why, it is over the limits.
 * @param {Step[]} steps
 * @param {Limits} limits
 * @returns {Judged[]}
 */
export function judge(steps, limits) {
  const base = steps[0]?.p99 ?? 0;
  return steps.map((step) => ({ ...step, over: excess(step, base, limits) }));
}

/**
 * @param {Step} step
 * @param {number} base
 * @param {Limits} limits
 */
function excess(step, base, limits) {
  if (step.notOk > limits.maxFailed) {
    return `${(100 * step.notOk).toFixed(1)} % not ok`;
  }
  if (step.begun < 0.9 * step.rate * step.seconds) {
    return `only ${(step.begun / step.seconds).toFixed(1)}/s could be begun`;
  }
  if (step.p99 > limits.factor * base) {
    return `p99 is ${(step.p99 / base).toFixed(1)} times that of the first step`;
  }
  return '';
}

/**
 * What the summary has of it.
 * @param {Judged[]} steps
 * @returns {import('./summary.js').Extra}
 */
export function kneeSummary(steps) {
  const at = lastWithin(steps);
  const knee = at < steps.length - 1 ? steps[at] : undefined;
  const rows = [
    ['rate/s', 'begun', 'ok', 'not ok', 'p50 ms', 'p99 ms'],
    ...steps.map((s) => [
      s.rate.toFixed(1), String(s.begun), String(s.ok), `${(100 * s.notOk).toFixed(1)} %`, ms(s.p50), ms(s.p99),
    ]),
  ];
  return {
    title: 'steps (first byte)',
    lines: [...table(rows).map((line, i) => (steps[i - 1]?.over ? `${line}  <- ${steps[i - 1]?.over}` : line)), '', verdict(steps, at)],
    json: { steps, knee: knee ? { rate: knee.rate, p99_ms: knee.p99 } : null },
  };
}

/**
 * The index of the last step within the limits, -1 if none is. One below it that
 * was over had bad luck.
 * @param {Judged[]} steps
 */
function lastWithin(steps) {
  return steps.map((step) => step.over).lastIndexOf('');
}

/**
 * @param {Judged[]} steps
 * @param {number} at index of the knee
 */
function verdict(steps, at) {
  const knee = steps[at];
  const next = steps[at + 1];
  if (knee && next) {
    return `knee: ${knee.rate}/s, p99 ${ms(knee.p99)} ms; at ${next.rate}/s ${next.over}`;
  }
  if (next) {
    return `already ${next.rate}/s is too much: ${next.over}; lower LOAD_START_RATE`;
  }
  return knee ? `no knee up to ${knee.rate}/s: raise LOAD_STEP_RATE or LOAD_STEPS` : 'no step was run to its end';
}

// What is said at the end: a text, and a file for programs.

import { withoutSecrets } from './settings.js';
import { codes, outcomes } from './requests.js';

/**
 * What k6 hands to handleSummary, as far as we read it.
 * @typedef {object} Data
 * @property {Record<string, Metric>} metrics
 * @property {{ testRunDurationMs: number }} state
 */

/**
 * @typedef {object} Metric
 * @property {string} type
 * @property {Record<string, number>} values
 * @property {Record<string, { ok: boolean }>} [thresholds]
 */

/** @typedef {{ title: string, lines: string[], json: Record<string, unknown> }} Extra what a script adds */

/**
 * Returns what handleSummary returns.
 * @param {string} script
 * @param {import('./settings.js').Settings} s
 * @param {Data} data
 * @param {Extra} [extra]
 * @returns {Record<string, string>}
 */
export function summarize(script, s, data, extra) {
  const report = {
    script,
    settings: withoutSecrets(s),
    duration_seconds: data.state.testRunDurationMs / 1000,
    answers: Object.fromEntries(outcomes.map((o) => [o, count(data, `coordinator_answers{outcome:${o}}`)])),
    output_tokens: count(data, 'coordinator_output_tokens'),
    errors: Object.fromEntries(codes.map((c) => [c, count(data, `coordinator_errors{code:${c}}`)]).filter(([, n]) => n)),
    thresholds: thresholds(data),
    ...(extra && extra.json),
    metrics: data.metrics,
  };
  return {
    stdout: `${text(script, s, data, report, extra).join('\n')}\n`,
    [s.summary]: `${JSON.stringify(report, null, 2)}\n`,
  };
}

/**
 * A value of a metric; 0 if there is none.
 * @param {Data} data
 * @param {string} metric
 * @param {string} name
 */
export function value(data, metric, name) {
  return data.metrics[metric]?.values[name] ?? 0;
}

/**
 * @param {Data} data
 * @param {string} metric
 */
export function count(data, metric) {
  return value(data, metric, 'count');
}

/**
 * A table whose first column is to the left and the others are to the right.
 * @param {string[][]} rows
 */
export function table(rows) {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  return rows.map((row) => row.map((cell, column) => {
    const width = widths[column] ?? 0;
    return column === 0 ? cell.padEnd(width) : cell.padStart(width);
  }).join('  '));
}

/** @param {number} ms */
export const ms = (ms) => ms.toFixed(1);

/**
 * @param {string} script
 * @param {import('./settings.js').Settings} s
 * @param {Data} data
 * @param {{ duration_seconds: number, answers: Record<string, number>, output_tokens: number, errors: Record<string, number>, thresholds: Bound[] }} report
 * @param {Extra} [extra]
 */
function text(script, s, data, report, extra) {
  const { duration_seconds: took, answers } = report;
  const rate = (/** @type {number} */ n) => (took > 0 ? n / took : 0).toFixed(1);
  const checked = data.metrics.checks?.values;
  return [
    '',
    `${script}: ${s.url}, ${took.toFixed(1)} s`,
    '',
    `answers   ${outcomes.map((o) => `${answers[o]} ${o}`).join(', ')}; ${rate(answers.ok ?? 0)} ok/s, ${rate(report.output_tokens)} tokens/s`,
    ...(count(data, 'dropped_iterations') ? [`not begun ${count(data, 'dropped_iterations')}: all ${s.vus} of LOAD_VUS were busy`] : []),
    ...Object.entries(report.errors).map(([code, n]) => `error     ${code}: ${n}`),
    ...(checked ? [`checks    ${checked.passes} passed, ${checked.fails} failed`] : []),
    '',
    ...table(times(data)),
    ...(extra ? ['', extra.title, ...extra.lines] : []),
    '',
    ...report.thresholds.map((t) => `${t.ok ? 'met' : 'NOT MET'}: ${t.metric} ${t.bound}`),
    `written: ${s.summary}`,
  ];
}

/** @param {Data} data */
function times(data) {
  const rows = [['ms', 'count', 'p50', 'p90', 'p99', 'max']];
  for (const [metric, name] of [['coordinator_first_byte', 'first byte'], ['coordinator_total', 'total']]) {
    const all = Object.keys(data.metrics).filter((m) => m === metric || m.startsWith(`${metric}{kind:`)).sort();
    for (const found of all) {
      const kind = /\{kind:(.*)\}/.exec(found)?.[1];
      rows.push([
        kind ? `  ${kind}` : `${name}`, String(count(data, found)),
        ...['med', 'p(90)', 'p(99)', 'max'].map((stat) => ms(value(data, found, stat))),
      ]);
    }
  }
  return rows;
}

/** @typedef {{ metric: string, bound: string, ok: boolean }} Bound */

/**
 * @param {Data} data
 * @returns {Bound[]}
 */
function thresholds(data) {
  return Object.entries(data.metrics).flatMap(([metric, m]) => Object.entries(m.thresholds ?? {})
    .map(([bound, { ok }]) => ({ metric, bound, ok })));
}

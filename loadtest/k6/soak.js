// A small load for a long time. With LOAD_ADMIN it watches the coordinator's
// memory and goroutines, which must not grow.

import http from 'k6/http';
import { check } from 'k6';
import { Gauge, Trend } from 'k6/metrics';
import { seconds } from './lib/load.js';
import { readSettings } from './lib/settings.js';
import { steadyLoad } from './lib/steady.js';
import { summarize, value } from './lib/summary.js';

const settings = readSettings({ LOAD_RATE: '2', LOAD_DURATION: '2h' });
const script = steadyLoad('soak.js', settings, settings.weights);

/** What is watched, by its name in /metrics. */
const watched = /** @type {const} */ ({
  process_resident_memory_bytes: 'coordinator_memory_bytes',
  go_goroutines: 'coordinator_goroutines',
});

// A gauge has the last value, the trend those before it.
const gauges = Object.entries(watched).map(([source, name]) => ({
  source, last: new Gauge(name), all: new Trend(`${name}_all`),
}));

export const options = {
  ...script.options,
  scenarios: { ...script.options.scenarios, ...(settings.admin && { watch: watching() }) },
};
export const { setup } = script;
export default script.iterate;

/** @returns {import('k6/options').ConstantArrivalRateScenario} */
function watching() {
  return {
    executor: 'constant-arrival-rate',
    exec: 'watch',
    rate: 1,
    timeUnit: seconds(settings.watchInterval),
    duration: seconds(settings.duration),
    preAllocatedVUs: 1,
    maxVUs: 1,
    gracefulStop: '10s',
  };
}

export function watch() {
  const response = http.get(`${settings.admin}/metrics`, {
    headers: settings.adminToken ? { Authorization: `Bearer ${settings.adminToken}` } : {},
    tags: { name: '/metrics' },
    timeout: 10_000,
  });
  const text = typeof response.body === 'string' ? response.body : '';
  for (const { source, last, all } of gauges) {
    const found = new RegExp(`^${source} (\\S+)$`, 'm').exec(text);
    if (check(found, { [`/metrics has ${source}`]: (f) => f !== null })) {
      last.add(Number(found?.[1]));
      all.add(Number(found?.[1]));
    }
  }
}

/** @param {import('./lib/summary.js').Data} data */
export function handleSummary(data) {
  if (!settings.admin) {
    return script.handleSummary(data);
  }
  const lines = Object.values(watched).map((name) => `${name}: median ${value(data, `${name}_all`, 'med').toFixed(0)}, ` +
    `at most ${value(data, `${name}_all`, 'max').toFixed(0)}, last ${value(data, name, 'value').toFixed(0)}`);
  return summarize('soak.js', settings, data, { title: 'the coordinator', lines, json: {} });
}

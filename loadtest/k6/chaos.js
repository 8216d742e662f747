// A mixed load while the simulated cluster fails in one way after the other. It
// fails if a client sees what it should not, or if something is left in the
// cluster at the end. It needs LOAD_CLUSTER: this is never for a real one.

import { check, sleep } from 'k6';
import http from 'k6/http';
import { Counter, Rate } from 'k6/metrics';
import { bodyMaker } from './lib/bodies.js';
import { pick } from './lib/kinds.js';
import { findModel, optionsOf, seconds, steady, stop } from './lib/load.js';
import { outcomes, sender } from './lib/requests.js';
import { readSettings } from './lib/settings.js';
import { count, summarize, table } from './lib/summary.js';
import { timetable, waves } from './lib/waves.js';

const settings = readSettings({ LOAD_TIMEOUT: '30s' });
const { cluster, weights } = settings;
const control = { name: '/_cluster' };
const send = sender(settings, bodyMaker(settings));
const plan = timetable(settings);

const unexpected = new Rate('coordinator_unexpected');
const met = new Counter('coordinator_wave_requests'); // with tags wave and outcome

export const options = optionsOf(weights, {
  load: { ...steady({ ...settings, duration: plan.length }), exec: 'load' },
  faults: {
    executor: 'per-vu-iterations',
    exec: 'faults',
    vus: 1,
    iterations: 1,
    maxDuration: seconds(plan.length + 60),
  },
}, {
  coordinator_unexpected: ['rate==0'],
  checks: ['rate==1'],
  dropped_iterations: ['count<1'],
  ...Object.fromEntries(waves.flatMap((_, index) => outcomes
    .map((outcome) => [`coordinator_wave_requests{wave:${index},outcome:${outcome}}`, []]))),
});

/** @typedef {{ model: string, began: number, violations: number }} Begun */

/** @returns {Begun} */
export function setup() {
  if (!cluster) {
    stop('LOAD_CLUSTER must be the URL of a simulated cluster: coordinator demo and coordinator cluster print it');
  }
  const model = findModel(settings);
  clearFaults();
  return { model, violations: Number(state().violation_count), began: Date.now() };
}

/** @param {Begun} begun */
export function load({ model, began }) {
  const kind = pick(weights);
  const from = since(began);
  const answer = send(kind, model);
  const now = plan.met(from, since(began));
  const good = answer.outcome === 'ok' || now.some((wave) => wave.allows(answer));
  unexpected.add(!good);
  check(answer, { 'a client sees what it may see': () => good });
  if (!good) {
    console.error(`${kind.name}: ${answer.outcome}, ${answer.status} ${answer.code}; in: ${now.map((wave) => wave.name).join(', ') || 'no wave'}`);
  }
  for (const wave of now) {
    met.add(1, { wave: String(waves.indexOf(wave)), outcome: answer.outcome });
  }
}

/** @param {Begun} begun */
export function faults({ began }) {
  for (const { wave, begins, ends } of plan.times) {
    waitUntil(began, begins);
    const before = Number(state().faulted_legs);
    const id = setFault(wave);
    waitUntil(began, ends);
    check(state(), { [`it hit: ${wave.name}`]: (after) => Number(after.faulted_legs) > before });
    clearFault(id);
  }
}

/**
 * What is still there a while later is never given back.
 * @param {Begun} begun
 */
export function teardown({ violations }) {
  clearFaults();
  let left = state();
  for (let tries = 0; !isIdle(left) && tries < 40; tries++) { // a lease of KV lasts for 30 s
    sleep(1);
    left = state();
  }
  check(left, {
    'nothing is left in the cluster': isIdle,
    'no leg broke the contract': (s) => Number(s.violation_count) === violations,
  });
}

/** @param {import('./lib/summary.js').Data} data */
export function handleSummary(data) {
  const rows = waves.map((wave, index) => [wave.name, ...outcomes
    .map((outcome) => String(count(data, `coordinator_wave_requests{wave:${index},outcome:${outcome}}`)))]);
  return summarize('chaos.js', settings, data, {
    title: 'waves, to the end of their recovery',
    lines: table([['', ...outcomes], ...rows]),
    json: { waves: rows.map(([name, ...counts]) => ({ name, ...Object.fromEntries(outcomes.map((o, i) => [o, Number(counts[i])])) })) },
  });
}

/** @param {number} began */
function since(began) {
  return (Date.now() - began) / 1000;
}

/**
 * @param {number} began
 * @param {number} at seconds
 */
function waitUntil(began, at) {
  sleep(Math.max(0, at - since(began)));
}

/**
 * What the cluster counts; see loadtest/cluster/state.go.
 * @returns {Record<string, any>}
 */
function state() {
  const response = http.get(`${cluster}/_cluster/state`, { tags: control });
  if (response.status !== 200) {
    stop(`GET ${cluster}/_cluster/state: ${response.error || response.status}`);
  }
  return /** @type {Record<string, any>} */ (response.json());
}

/** @param {Record<string, any>} s */
function isIdle(s) {
  return s.held_kv === 0 && Object.values(s.in_flight).every((n) => n === 0);
}

/**
 * @param {import('./lib/waves.js').Wave} wave
 * @returns {string} its id
 */
function setFault(wave) {
  const response = http.post(`${cluster}/_cluster/faults`, JSON.stringify(wave.fault), { tags: control });
  check(response, { 'a fault was set': (r) => r.status === 201 });
  return String(response.json('id'));
}

/** @param {string} id */
function clearFault(id) {
  const response = http.del(`${cluster}/_cluster/faults/${id}`, null, {
    tags: control,
    responseCallback: http.expectedStatuses(204, 404),
  });
  check(response, { 'a fault was cleared': (r) => r.status === 204 || r.status === 404 }); // 404: it was spent
}

function clearFaults() {
  const response = http.del(`${cluster}/_cluster/faults`, null, { tags: control });
  check(response, { 'all faults were cleared': (r) => r.status === 204 });
}

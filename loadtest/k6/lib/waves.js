// The faults that chaos.js brings about, one wave after the other, and what a
// client may see of each.

/** @typedef {import('./requests.js').Answer} Answer */

/**
 * @typedef {object} Wave
 * @property {string} name
 * @property {Record<string, unknown>} fault as the cluster takes it, see loadtest/cluster/control.go
 * @property {(answer: Answer) => boolean} allows besides answers that are good
 */

/** @type {(answer: Answer) => boolean} */
const nothing = () => false;

/**
 * What a failing phase may look like: it failed, or its breaker is open by now.
 * @type {(answer: Answer) => boolean}
 */
const failing = ({ status, code }) => status === 502 || (status === 503 && code === 'upstream_unavailable');

/**
 * Decode's own error goes through as it is.
 * @type {(answer: Answer) => boolean}
 */
const decodeFailing = (answer) => failing(answer) || answer.status === 500;

/**
 * A stream that has begun can only break off.
 * @type {(answer: Answer) => boolean}
 */
const breaking = (answer) => decodeFailing(answer) || answer.outcome === 'broken' || answer.outcome === 'transport';

/** @type {Wave[]} */
export const waves = [
  // What the coordinator must hide altogether.
  { name: 'render is slow', fault: { leg: 'render', delay: '300ms' }, allows: nothing },
  { name: 'two prefills answer 503', fault: { leg: 'prefill', status: 503, times: 2 }, allows: nothing },
  { name: 'a decode loses its KV', fault: { leg: 'decode', lose_kv: true, times: 1 }, allows: nothing },
  // What it cannot hide, but must keep from being worse.
  { name: 'render answers 500', fault: { leg: 'render', status: 500 }, allows: failing },
  { name: 'prefill drops connections', fault: { leg: 'prefill', drop: true }, allows: failing },
  { name: 'decode answers 500', fault: { leg: 'decode', status: 500 }, allows: decodeFailing },
  { name: 'decode breaks off', fault: { leg: 'decode', break_after: 3 }, allows: breaking },
  { name: 'decode fails in the stream', fault: { leg: 'decode', error_event_after: 3 }, allows: breaking },
];

/**
 * When the waves are, in seconds from the beginning. First it is quiet.
 * @param {{ wave: number, quiet: number, recovery: number }} s
 */
export function timetable(s) {
  const times = waves.map((wave, index) => {
    const begins = s.quiet + index * (s.wave + s.quiet);
    return { wave, begins, ends: begins + s.wave, recovered: begins + s.wave + s.recovery };
  });
  return {
    times,
    length: s.quiet + waves.length * (s.wave + s.quiet),
    /**
     * The waves that a request can have met: of those it was under way in, or
     * soon after, while breakers were still open.
     * @param {number} from
     * @param {number} to
     */
    met: (from, to) => times.filter((t) => from < t.recovered && to >= t.begins).map((t) => t.wave),
  };
}

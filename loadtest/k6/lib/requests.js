// One request: sent, judged, measured.

import { check } from 'k6';
import http from 'k6/http';
import { Counter, Rate, Trend } from 'k6/metrics';

// Times are of answers that were good: errors, which are often quick, do not make
// a server look fast.
const firstByte = new Trend('coordinator_first_byte', true);
const total = new Trend('coordinator_total', true);
const answers = new Counter('coordinator_answers'); // with tags kind and outcome
const notOk = new Rate('coordinator_not_ok');
const tokens = new Counter('coordinator_output_tokens');
const errors = new Counter('coordinator_errors'); // with the tag code

/**
 * What can become of a request: a whole answer of 2xx; 429 or 503; another
 * status; 2xx, but the answer says that it failed or is not whole; no answer, or
 * one that broke off, between which k6 makes no difference.
 */
export const outcomes = /** @type {const} */ (['ok', 'refused', 'failed', 'broken', 'transport']);

/** Codes of error objects, as in docs/operations.md; all others are "other". */
export const codes = ['internal', 'invalid_json', 'invalid_media', 'invalid_prompt', 'limit_exceeded', 'media_fetch_failed',
  'not_found', 'queue_full', 'request_timeout', 'request_too_large', 'routing_loop', 'shutting_down', 'upstream_failed',
  'upstream_rejected', 'upstream_timeout', 'upstream_unavailable', 'other'];

/**
 * @typedef {object} Answer
 * @property {typeof outcomes[number]} outcome
 * @property {number} status
 * @property {string} code "" if there is none
 */

/** @typedef {Record<string, string>} Tags */

/**
 * Returns a function that sends a request and measures what comes back. To be
 * called where a script is initialised.
 * @param {import('./settings.js').Settings} s
 * @param {ReturnType<typeof import('./bodies.js').bodyMaker>} newBody
 */
export function sender(s, newBody) {
  const headers = requestHeaders(s);
  const expected = http.expectedStatuses({ min: 200, max: 299 });
  /**
   * @param {import('./kinds.js').Kind} kind
   * @param {string} model
   * @param {Tags} [tags]
   * @returns {Answer}
   */
  return (kind, model, tags = {}) => {
    const { path, body } = newBody(kind, model);
    const own = { kind: kind.name, ...tags };
    const response = http.post(s.url + path, body, {
      headers,
      tags: { name: path, ...own },
      timeout: s.timeout * 1000,
      redirects: 0,
      responseCallback: expected,
    });
    const text = typeof response.body === 'string' ? response.body : '';
    const answer = judge(kind, response.status, text);
    measure(response, text, answer, own);
    return answer;
  };
}

/**
 * As check of k6: an answer that is good.
 * @param {Answer} answer
 * @param {import('./kinds.js').Kind} kind
 */
export function checkGood(answer, kind) {
  return check(answer, {
    [`${kind.name}: status is 2xx`]: (a) => a.status >= 200 && a.status < 300,
    [`${kind.name}: answer is whole`]: (a) => a.outcome === 'ok',
  }, { kind: kind.name });
}

/** @param {import('./settings.js').Settings} s */
export function requestHeaders(s) {
  return {
    'Content-Type': 'application/json',
    ...(s.apiKey && { Authorization: `Bearer ${s.apiKey}` }),
    ...s.headers,
  };
}

/**
 * @param {import('./kinds.js').Kind} kind
 * @param {number} status
 * @param {string} text
 * @returns {Answer}
 */
function judge(kind, status, text) {
  if (status === 0) {
    return { outcome: 'transport', status, code: '' };
  }
  if (status < 200 || status > 299) {
    const refused = status === 429 || status === 503;
    return { outcome: refused ? 'refused' : 'failed', status, code: codeOf(text) };
  }
  const whole = kind.stream ? isWholeStream(text) : isWholeAnswer(text);
  return { outcome: whole ? 'ok' : 'broken', status, code: whole ? '' : codeOf(lastErrorEvent(text)) };
}

/**
 * A stream is whole if it ends with [DONE] and no event of it is an error.
 * @param {string} text
 */
function isWholeStream(text) {
  return text.trimEnd().endsWith('data: [DONE]') && lastErrorEvent(text) === '' && !text.includes('"finish_reason":"error"');
}

/** @param {string} text */
function isWholeAnswer(text) {
  const answer = parse(text);
  const choices = Array.isArray(answer?.choices) ? answer.choices : [];
  return choices.length > 0 && choices.every((/** @type {any} */ c) => c.finish_reason && c.finish_reason !== 'error');
}

/**
 * The data of the last event that is an error object, "" if there is none.
 * @param {string} text
 */
function lastErrorEvent(text) {
  const at = text.lastIndexOf('data: {"error"');
  return at < 0 ? '' : (text.slice(at + 'data: '.length).split('\n')[0] ?? '');
}

/** @param {string} text */
function codeOf(text) {
  const code = parse(text)?.error?.code;
  return codes.includes(code) ? code : 'other';
}

/**
 * @param {string} text
 * @returns {any} null if it is no JSON
 */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch (_) {
    return null;
  }
}

/**
 * @param {import('k6/http').Response} response
 * @param {string} text
 * @param {Answer} answer
 * @param {Tags} tags
 */
function measure(response, text, answer, tags) {
  answers.add(1, { ...tags, outcome: answer.outcome });
  notOk.add(answer.outcome !== 'ok', tags);
  if (answer.outcome === 'ok') {
    firstByte.add(response.timings.sending + response.timings.waiting, tags);
    total.add(response.timings.duration, tags);
    tokens.add(countTokens(text), tags);
  } else if (answer.code) {
    errors.add(1, { ...tags, code: answer.code });
  }
}

/**
 * Tokens of an answer, by what it says of its usage, which comes last.
 * @param {string} text
 */
function countTokens(text) {
  const key = '"completion_tokens":';
  const at = text.lastIndexOf(key);
  return at < 0 ? 0 : parseInt(text.slice(at + key.length), 10) || 0;
}

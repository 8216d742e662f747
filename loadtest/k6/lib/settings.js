// What an operator can set: variables of the environment that begin with LOAD_.
// README.md has the table. Every number has bounds, so that a slip of the finger
// asks for no load without end.

import { parseWeights } from './kinds.js';

/**
 * @typedef {object} Settings
 * @property {string} url where the coordinator is
 * @property {string} model "" is the first one of /v1/models
 * @property {string} apiKey
 * @property {Record<string, string>} headers
 * @property {number} rate requests begun in a second
 * @property {number} duration seconds
 * @property {number} vus requests under way at a time, at most
 * @property {number} timeout seconds
 * @property {number} promptWords
 * @property {number} maxTokens
 * @property {boolean} ignoreEos
 * @property {[number, number]} images fewest and most in a request
 * @property {number} imageBytes
 * @property {string} imageSource inline, url or both
 * @property {string} imageUrl
 * @property {import('./kinds.js').Weights} weights
 * @property {number} maxFailed share of requests
 * @property {number} p99 milliseconds to the first byte; 0 is no bound
 * @property {string} summary path of the file
 * @property {number} startRate
 * @property {number} stepRate
 * @property {number} steps
 * @property {number} stepDuration seconds
 * @property {number} kneeFactor
 * @property {string} cluster
 * @property {number} wave seconds
 * @property {number} quiet seconds
 * @property {number} recovery seconds
 * @property {string} admin
 * @property {string} adminToken
 * @property {number} watchInterval seconds
 */

/**
 * What a script has in place of the general defaults, as it would be written in
 * the environment.
 * @typedef {Record<string, string>} Defaults
 */

const most = 10_000_000; // requests of a run

const general = {
  LOAD_URL: 'http://127.0.0.1:8080',
  LOAD_MODEL: '',
  LOAD_API_KEY: '',
  LOAD_HEADERS: '{}',
  LOAD_RATE: '5',
  LOAD_DURATION: '30s',
  LOAD_VUS: '50',
  LOAD_TIMEOUT: '60s',
  LOAD_PROMPT_WORDS: '100',
  LOAD_MAX_TOKENS: '16',
  LOAD_IGNORE_EOS: 'false',
  LOAD_IMAGES: '1-8',
  LOAD_IMAGE_BYTES: '12000',
  LOAD_IMAGE_SOURCE: '',
  LOAD_IMAGE_URL: '',
  LOAD_WEIGHTS: 'chat=3,chat-stream=4,completions=1,completions-stream=1,generate=1,images-stream=2',
  LOAD_MAX_FAILED: '0.01',
  LOAD_P99_MS: '0',
  LOAD_SUMMARY: 'summary.json',
  LOAD_START_RATE: '5',
  LOAD_STEP_RATE: '5',
  LOAD_STEPS: '8',
  LOAD_STEP_DURATION: '20s',
  LOAD_KNEE_FACTOR: '3',
  LOAD_CLUSTER: '',
  LOAD_WAVE: '10s',
  LOAD_QUIET: '10s',
  LOAD_RECOVERY: '8s',
  LOAD_ADMIN: '',
  LOAD_ADMIN_TOKEN: '',
  LOAD_WATCH_INTERVAL: '30s',
};

/**
 * Reads the environment. A misspelt name, or a value that makes no sense, stops
 * the run before it begins.
 * @param {Defaults} [own]
 * @returns {Settings}
 */
export function readSettings(own = {}) {
  for (const name of Object.keys(__ENV)) {
    if (name.startsWith('LOAD_') && !(name in general)) {
      throw new Error(`${name}: no such setting; there are ${Object.keys(general).join(', ')}`);
    }
  }
  /** @type {Record<string, string>} */
  const values = { ...general, ...own };
  for (const name of Object.keys(general)) {
    values[name] = __ENV[name] || values[name] || '';
  }
  const settings = interpret(values);
  settle(settings);
  return settings;
}

/**
 * @param {Record<string, string>} values
 * @returns {Settings}
 */
function interpret(values) {
  /** @param {string} name */
  const text = (name) => values[name] ?? '';
  /** @type {(name: string, least: number, most: number) => number} */
  const number = (name, least, most) => within(name, text(name), Number(text(name)), least, most);
  /** @type {(name: string, least: number, most: number) => number} */
  const whole = (name, least, most) => Math.round(number(name, least, most));
  /** @type {(name: string, least: number, most: number) => number} */
  const seconds = (name, least, most) => within(name, text(name), parseDuration(text(name)), least, most);
  return {
    url: address('LOAD_URL', text('LOAD_URL')),
    model: text('LOAD_MODEL'),
    apiKey: text('LOAD_API_KEY'),
    headers: parseHeaders(text('LOAD_HEADERS')),
    rate: number('LOAD_RATE', 1 / 60, 10_000),
    duration: seconds('LOAD_DURATION', 1, 24 * 3600),
    vus: whole('LOAD_VUS', 1, 20_000),
    timeout: seconds('LOAD_TIMEOUT', 1, 3600),
    promptWords: whole('LOAD_PROMPT_WORDS', 8, 200_000),
    maxTokens: whole('LOAD_MAX_TOKENS', 1, 100_000),
    ignoreEos: truth('LOAD_IGNORE_EOS', text('LOAD_IGNORE_EOS')),
    images: range('LOAD_IMAGES', text('LOAD_IMAGES'), 1, 8),
    imageBytes: whole('LOAD_IMAGE_BYTES', 1000, 20_000_000),
    imageSource: text('LOAD_IMAGE_SOURCE'),
    imageUrl: text('LOAD_IMAGE_URL'),
    weights: parseWeights(text('LOAD_WEIGHTS')),
    maxFailed: number('LOAD_MAX_FAILED', 0, 1),
    p99: number('LOAD_P99_MS', 0, 3_600_000),
    summary: text('LOAD_SUMMARY'),
    startRate: number('LOAD_START_RATE', 1 / 60, 10_000),
    stepRate: number('LOAD_STEP_RATE', 1 / 60, 10_000),
    steps: whole('LOAD_STEPS', 2, 50),
    stepDuration: seconds('LOAD_STEP_DURATION', 1, 3600),
    kneeFactor: number('LOAD_KNEE_FACTOR', 1.1, 1000),
    cluster: text('LOAD_CLUSTER') && address('LOAD_CLUSTER', text('LOAD_CLUSTER')),
    wave: seconds('LOAD_WAVE', 1, 600),
    quiet: seconds('LOAD_QUIET', 1, 600),
    recovery: seconds('LOAD_RECOVERY', 0, 600),
    admin: text('LOAD_ADMIN') && address('LOAD_ADMIN', text('LOAD_ADMIN')),
    adminToken: text('LOAD_ADMIN_TOKEN'),
    watchInterval: seconds('LOAD_WATCH_INTERVAL', 1, 3600),
  };
}

/**
 * Fills in what follows from other settings, and refuses what does not go
 * together.
 * @param {Settings} s
 */
function settle(s) {
  if (s.rate * s.duration > most) {
    throw new Error(`LOAD_RATE and LOAD_DURATION ask for more than ${most} requests`);
  }
  if (!s.imageUrl && s.cluster) {
    s.imageUrl = `${s.cluster}/_origin/{name}.png?bytes={bytes}`;
  }
  s.imageSource = s.imageSource || (s.imageUrl ? 'both' : 'inline');
  if (!['inline', 'url', 'both'].includes(s.imageSource)) {
    throw new Error(`LOAD_IMAGE_SOURCE is inline, url or both, not ${s.imageSource}`);
  }
  if (s.imageSource !== 'inline' && !s.imageUrl) {
    throw new Error('LOAD_IMAGE_SOURCE needs LOAD_IMAGE_URL, or LOAD_CLUSTER');
  }
  if (s.recovery > s.quiet) {
    throw new Error('LOAD_RECOVERY is part of LOAD_QUIET and cannot be longer');
  }
}

/**
 * The settings that are worth a place in a report: no credentials.
 * @param {Settings} s
 */
export function withoutSecrets(s) {
  const { apiKey: _key, adminToken: _token, headers: _headers, imageUrl, ...rest } = s;
  return { ...rest, imageUrl: imageUrl.replace(/\?.*/, '?…').replace(/\/\/[^/]*@/, '//') }; // it may be signed
}

/**
 * Seconds of a duration as in "90s" or "1h30m"; NaN if it is none.
 * @param {string} text
 */
export function parseDuration(text) {
  const units = /** @type {Record<string, number>} */ ({ ms: 0.001, s: 1, m: 60, h: 3600 });
  if (!/^(\d+(\.\d+)?(ms|s|m|h))+$/.test(text)) {
    return NaN;
  }
  let sum = 0;
  for (const [, count, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)) {
    sum += Number(count) * (units[unit ?? ''] ?? NaN);
  }
  return sum;
}

/**
 * @param {string} name
 * @param {string} text
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function within(name, text, value, least, most) {
  if (!(value >= least && value <= most)) { // NaN is neither
    throw new Error(`${name} is "${text}"; it must be from ${+least.toFixed(4)} to ${most}`);
  }
  return value;
}

/**
 * @param {string} name
 * @param {string} text
 */
function address(name, text) {
  if (!/^https?:\/\/[^/?#@]+(\/[^?#]*)?$/.test(text)) { // what it is may hold a password
    throw new Error(`${name} is no http or https URL without user, password and query`);
  }
  return text.replace(/\/+$/, '');
}

/**
 * @param {string} name
 * @param {string} text
 */
function truth(name, text) {
  if (text !== 'true' && text !== 'false') {
    throw new Error(`${name} is true or false, not ${text}`);
  }
  return text === 'true';
}

/**
 * @param {string} name
 * @param {string} text
 * @param {number} least
 * @param {number} most
 * @returns {[number, number]}
 */
function range(name, text, least, most) {
  const found = /^(\d+)(?:-(\d+))?$/.exec(text);
  const low = Number(found?.[1]);
  const high = Number(found?.[2] ?? low);
  if (!(low >= least && high <= most && low <= high)) {
    throw new Error(`${name} is "${text}"; it must be a number or a range within ${least}-${most}`);
  }
  return [low, high];
}

/**
 * @param {string} text
 * @returns {Record<string, string>}
 */
function parseHeaders(text) {
  /** @type {unknown} */
  let value;
  try {
    value = JSON.parse(text);
  } catch (_) {
    value = null;
  }
  const good = value !== null && typeof value === 'object' && !Array.isArray(value) &&
    Object.values(value).every((v) => typeof v === 'string');
  if (!good) {
    throw new Error('LOAD_HEADERS must be a JSON object of strings'); // not shown: it may have a credential
  }
  return /** @type {Record<string, string>} */ (value);
}

// Bodies of requests. No two are alike, and prompts differ at their beginning, so
// that no cache of prompts answers for the workers.

import { imageMaker } from './image.js';

const words = 'the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what all were we when your can said there use an each which she do how their if will up other about out many then them these so some her would make like him into time has look two more write go see number no way could people my than first water been call who oil its now find long down day did get come made may part'.split(' ');

const paths = {
  chat: '/v1/chat/completions',
  completions: '/v1/completions',
  generate: '/inference/v1/generate',
  images: '/v1/chat/completions',
};

/**
 * Returns a function that makes the path and the body of a new request. To be
 * called where a script is initialised.
 * @param {import('./settings.js').Settings} s
 */
export function bodyMaker(s) {
  const inlined = imageMaker(s.imageBytes);
  /** @param {import('./kinds.js').Kind} kind */
  const imageParts = (kind) => (kind.form === 'images' ? images(s, inlined) : []);
  /**
   * @param {import('./kinds.js').Kind} kind
   * @param {string} model
   */
  return (kind, model) => ({ path: paths[kind.form], body: JSON.stringify(content(s, kind, model, imageParts(kind))) });
}

/**
 * @param {import('./settings.js').Settings} s
 * @param {import('./kinds.js').Kind} kind
 * @param {string} model
 * @param {object[]} imageParts
 */
function content(s, kind, model, imageParts) {
  const sampling = { max_tokens: s.maxTokens, ...(s.ignoreEos && { ignore_eos: true }) };
  const common = { model, stream: kind.stream, ...(kind.stream && { stream_options: { include_usage: true } }) };
  switch (kind.form) {
    case 'generate':
      return { ...common, sampling_params: sampling, token_ids: tokenIds(s.promptWords) };
    case 'completions':
      return { ...common, ...sampling, prompt: prompt(s.promptWords) };
    default: {
      const text = prompt(s.promptWords);
      const parts = imageParts.length > 0 ? [{ type: 'text', text }, ...imageParts] : text;
      return { ...common, ...sampling, messages: [{ role: 'user', content: parts }] };
    }
  }
}

/** @param {number} count */
function prompt(count) {
  const text = [nonce()];
  for (let i = 1; i < count; i++) {
    text.push(words[Math.floor(Math.random() * words.length)] ?? '');
  }
  return text.join(' ');
}

/**
 * Ids that every vocabulary has, and none that steers.
 * @param {number} count
 */
function tokenIds(count) {
  return Array.from({ length: count }, () => 1000 + Math.floor(Math.random() * 9000));
}

/**
 * @param {import('./settings.js').Settings} s
 * @param {() => string} inlined
 */
function images(s, inlined) {
  const [fewest, most] = s.images;
  const count = fewest + Math.floor(Math.random() * (most - fewest + 1));
  return Array.from({ length: count }, (_, i) => {
    const byUrl = s.imageSource === 'url' || (s.imageSource === 'both' && i % 2 === 0);
    return { type: 'image_url', image_url: { url: byUrl ? remote(s) : inlined() } };
  });
}

/**
 * The address of an image that nobody asked for yet, if the template has a name.
 * @param {import('./settings.js').Settings} s
 */
function remote(s) {
  return s.imageUrl.replace('{name}', nonce()).replace('{bytes}', String(s.imageBytes));
}

function nonce() {
  return Math.floor(Math.random() * 2 ** 48).toString(16);
}

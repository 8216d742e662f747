// Images that real workers can decode, each with its own pixels, at the price of
// encoding 60 bytes: a PNG of 16 colours whose dots are the same in all images of
// a size, and whose colours are new in each. The parts before the dots have a
// multiple of 3 bytes, so that their base64 can be put before that of the rest.

import { b64encode } from 'k6/encoding';
import { SharedArray } from 'k6/data';

const crcTable = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) {
    n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  }
  return n;
});

/**
 * Returns a function that makes a data URI of a new image with about so many
 * bytes. To be called where a script is initialised.
 * @param {number} bytes
 * @returns {() => string}
 */
export function imageMaker(bytes) {
  const side = 2 * Math.max(14, Math.round(Math.sqrt(2 * Math.max(0, bytes - 150)) / 2)); // two dots in a byte
  const [rest] = new SharedArray(`dots of ${side}`, () => [encodeBytes(join([chunk('IDAT', dots(side)), chunk('IEND', [])]))]);
  const head = encodeBytes(join([
    [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a],
    chunk('IHDR', [...uint32(side), ...uint32(side), 4, 3, 0, 0, 0]), // 4 bits, from a palette
  ]));
  return () => `data:image/png;base64,${head}${encodeBytes(palette())}${rest}`;
}

/** A chunk of 60 bytes. */
function palette() {
  return chunk('PLTE', Array.from({ length: 3 * 16 }, () => Math.floor(Math.random() * 256)));
}

/**
 * The dots, by chance but the same in every run, in zlib's form without
 * compression, so that the size is what was asked for.
 * @param {number} side
 */
function dots(side) {
  const row = 1 + side / 2; // a filter, which is none, and the dots
  const raw = new Uint8Array(side * row);
  let state = 1;
  for (let at = 0; at < raw.length; at++) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    raw[at] = at % row === 0 ? 0 : state >>> 24;
  }
  /** @type {Bytes[]} */
  const parts = [[0x78, 0x01]];
  for (let at = 0; at < raw.length; at += 65535) {
    const block = raw.subarray(at, at + 65535);
    const last = at + block.length === raw.length ? 1 : 0;
    const low = block.length & 255;
    const high = block.length >>> 8;
    parts.push([last, low, high, low ^ 255, high ^ 255], block);
  }
  parts.push(uint32(adler32(raw)));
  return join(parts);
}

/** @typedef {number[] | Uint8Array} Bytes */

/**
 * @param {string} type
 * @param {Bytes} data
 */
function chunk(type, data) {
  const body = join([[...type].map((c) => c.charCodeAt(0)), data]);
  return join([uint32(data.length), body, uint32(crc32(body))]);
}

/** @param {Bytes[]} parts */
function join(parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param {Uint8Array} bytes */
function crc32(bytes) {
  let crc = 0xffffffff;
  for (let at = 0; at < bytes.length; at++) {
    crc = Number(crcTable[(crc ^ Number(bytes[at])) & 255]) ^ (crc >>> 8);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** @param {Uint8Array} bytes */
function adler32(bytes) {
  let a = 1;
  let b = 0;
  for (let at = 0; at < bytes.length; at++) {
    a = (a + Number(bytes[at])) % 65521;
    b = (b + a) % 65521;
  }
  return ((b << 16) | a) >>> 0;
}

/** @param {number} n */
function uint32(n) {
  return [n >>> 24, (n >>> 16) & 255, (n >>> 8) & 255, n & 255];
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
function encodeBytes(bytes) {
  return b64encode(bytes.buffer);
}

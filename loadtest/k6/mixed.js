// Requests of all kinds, by weight (LOAD_WEIGHTS).

import { readSettings } from './lib/settings.js';
import { steadyLoad } from './lib/steady.js';

const settings = readSettings({ LOAD_DURATION: '1m' });
const script = steadyLoad('mixed.js', settings, settings.weights);

export const { options, setup, handleSummary } = script;
export default script.iterate;

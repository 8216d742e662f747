// Chat with images, 1 to 8 of them, inlined and by URL.

import { parseWeights } from './lib/kinds.js';
import { readSettings } from './lib/settings.js';
import { steadyLoad } from './lib/steady.js';

const settings = readSettings({ LOAD_RATE: '2' });
const script = steadyLoad('images.js', settings, parseWeights('images=1,images-stream=1'));

export const { options, setup, handleSummary } = script;
export default script.iterate;

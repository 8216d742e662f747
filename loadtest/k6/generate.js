// Token ids in, token ids out.

import { parseWeights } from './lib/kinds.js';
import { readSettings } from './lib/settings.js';
import { steadyLoad } from './lib/steady.js';

const settings = readSettings();
const script = steadyLoad('generate.js', settings, parseWeights('generate=1,generate-stream=1'));

export const { options, setup, handleSummary } = script;
export default script.iterate;

// Chat and completions with text alone, answered whole.

import { parseWeights } from './lib/kinds.js';
import { readSettings } from './lib/settings.js';
import { steadyLoad } from './lib/steady.js';

const settings = readSettings();
const script = steadyLoad('text.js', settings, parseWeights('chat=1,completions=1'));

export const { options, setup, handleSummary } = script;
export default script.iterate;

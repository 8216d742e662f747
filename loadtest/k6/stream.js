// Chat and completions with text alone, streamed; longer answers, so that streams are open for a while.

import { parseWeights } from './lib/kinds.js';
import { readSettings } from './lib/settings.js';
import { steadyLoad } from './lib/steady.js';

const settings = readSettings({ LOAD_MAX_TOKENS: '64' });
const script = steadyLoad('stream.js', settings, parseWeights('chat-stream=1,completions-stream=1'));

export const { options, setup, handleSummary } = script;
export default script.iterate;

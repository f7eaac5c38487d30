// @ts-check
// The live stream over fetch, because EventSource cannot send a token. It reconnects by itself, forever; after every
// break it begins with the whole picture.

const RETRY_MS_MIN = 300;
const RETRY_MS_MAX = 3000;
/** The gateway sends something at least every ten seconds; after this long the connection counts as dead. */
const SILENCE_MS = 25000;

/**
 * @param {string} token
 * @param {(message: {type: string, data?: any}) => void} onMessage `now`, `whole`, `patch`, `away` (trying again), `end` (refused)
 * @returns {() => void} ends it
 */
export function follow(token, onMessage) {
  const ended = new AbortController();
  void run(token, onMessage, ended.signal);
  return () => ended.abort();
}

/** @param {string} token @param {(message: {type: string, data?: any}) => void} onMessage @param {AbortSignal} ended */
async function run(token, onMessage, ended) {
  let wait = RETRY_MS_MIN;
  while (!ended.aborted) {
    try {
      const refused = await connectOnce(token, (message) => { wait = RETRY_MS_MIN; onMessage(message); }, ended);
      if (refused) return onMessage({ type: "end", data: refused });
    } catch {
      // the gateway does not answer
    }
    if (ended.aborted) return;
    onMessage({ type: "away" });
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 1.6, RETRY_MS_MAX);
  }
}

/** Run one connection until it ends. Returns the problem if it was refused. @param {string} token @param {(message: any) => void} onMessage @param {AbortSignal} ended */
async function connectOnce(token, onMessage, ended) {
  const silence = new AbortController();
  const stop = () => silence.abort();
  ended.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MS);
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : undefined;
    const answer = await fetch("/live", { headers, signal: silence.signal });
    if (answer.status === 401 || answer.status === 403) return await answer.json();
    if (!answer.ok || !answer.body) throw new Error(`HTTP ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return null;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const message = parse(text.slice(0, end));
        text = text.slice(end + 2);
        if (message?.type === "end") return message.data;
        if (message?.type === "now") message.data.ahead = Date.now() / 1000 - message.data.wall;
        if (message) onMessage(message);
      }
    }
  } finally {
    clearTimeout(timer);
    ended.removeEventListener("abort", stop);
  }
}

/** @param {string} block */
function parse(block) {
  const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
  return fields.data ? { type: fields.event, data: JSON.parse(fields.data) } : null;
}

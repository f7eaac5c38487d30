// @ts-check
// The live stream over fetch, because EventSource cannot send a token. It reconnects by itself, forever; after every
// break it begins with the whole picture.

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 3000;
/** The gateway sends something at least every ten seconds; after this long the connection counts as dead. */
const SILENCE_MS = 25000;

/**
 * @param {string} token
 * @param {(message: {type: string, data?: any}) => void} heard `now`, `whole`, `patch`, `away` (trying again), `end` (refused)
 * @returns {() => void} ends it
 */
export function follow(token, heard) {
  const ending = new AbortController();
  void run(token, heard, ending.signal);
  return () => ending.abort();
}

/** @param {string} token @param {(message: {type: string, data?: any}) => void} heard @param {AbortSignal} ending */
async function run(token, heard, ending) {
  let wait = FIRST_WAIT_MS;
  while (!ending.aborted) {
    try {
      const refused = await once(token, (message) => { wait = FIRST_WAIT_MS; heard(message); }, ending);
      if (refused) return heard({ type: "end", data: refused });
    } catch {
      // the gateway does not answer
    }
    if (ending.aborted) return;
    heard({ type: "away" });
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 1.6, LONGEST_WAIT_MS);
  }
}

/** Run one connection until it ends. Returns the problem if it was refused. @param {string} token @param {(message: any) => void} heard @param {AbortSignal} ending */
async function once(token, heard, ending) {
  const silence = new AbortController();
  const stop = () => silence.abort();
  ending.addEventListener("abort", stop);
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
        if (message) heard(message);
      }
    }
  } finally {
    clearTimeout(timer);
    ending.removeEventListener("abort", stop);
  }
}

/** @param {string} block */
function parse(block) {
  const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
  return fields.data ? { type: fields.event, data: JSON.parse(fields.data) } : null;
}

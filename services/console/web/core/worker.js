// @ts-check
// One stream for all tabs: over HTTP/1.1 a browser opens six connections to a host, and a seventh tab would hang.
import { follow } from "./stream.js";
import { applyMergePatch } from "./merge.js";

/** @typedef {{stop: () => void, ports: Set<MessagePort>, picture: any, sequence: number, away: boolean, now: any}} Shared */
/** @type {Map<string, Shared>} by token: tabs may be logged in as different people */
const streams = new Map();
let lastToken = "";

/** @type {any} */ (self).onconnect = (/** @type {MessageEvent} */ event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data.type === "token?") port.postMessage({ type: "token", token: lastToken });
    if (data.type === "follow") join(data.token, port);
    if (data.type === "leave") leave(port, data.logout);
  };
  port.start();
};

/** @param {string} token @param {MessagePort} port */
function join(token, port) {
  lastToken = token;
  let shared = streams.get(token);
  if (!shared) {
    shared = { stop: () => {}, ports: new Set(), picture: null, sequence: 0, away: false, now: null };
    streams.set(token, shared);
    shared.stop = follow(token, (message) => forward(token, message));
  }
  shared.ports.add(port);
  if (shared.now) port.postMessage(shared.now);
  if (shared.picture) {
    port.postMessage({ type: "whole", data: { picture: shared.picture, sequence: shared.sequence } });
  }
  if (shared.away) port.postMessage({ type: "away" });
}

/** @param {MessagePort} port @param {boolean} logout */
function leave(port, logout) {
  for (const [token, shared] of streams) {
    if (!shared.ports.delete(port)) continue;
    if (logout && lastToken === token) lastToken = "";
    if (shared.ports.size) continue;
    shared.stop();
    streams.delete(token);
  }
}

/** @param {string} token @param {{type: string, data?: any}} message */
function forward(token, message) {
  const shared = streams.get(token);
  if (!shared) return;
  shared.away = message.type === "away";
  if (message.type === "now") shared.now = message;
  if (message.type === "whole") {
    shared.picture = message.data.picture;
  }
  if (message.type === "patch") shared.picture = applyMergePatch(shared.picture, message.data.patch);
  if (message.data?.sequence) shared.sequence = message.data.sequence;
  if (message.type === "end") {
    streams.delete(token);
    if (lastToken === token) lastToken = "";
  }
  for (const port of shared.ports) port.postMessage(message);
}

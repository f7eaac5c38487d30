// @ts-check
// The live picture in this tab: the newest one, the state of the connection, and the frames of the last ten minutes.
import { follow } from "./stream.js";
import { applyMergePatch } from "./merge.js";

const FRAMES_KEPT_MS = 10 * 60 * 1000;
const FRAMES_MAX = 3000;
/** A clock difference to the gateway that is ignored, as it may be network delay. */
const CLOCK_AHEAD_IGNORED_S = 1;

/** @typedef {{at: number, picture: any}} Frame */

class Live extends EventTarget {
  /** @type {any} the newest picture; null before the first came */
  newest = null;
  /** @type {Frame[]} */
  frames = [];
  /** @type {Frame | null} the frame that the time slider shows; null shows the newest */
  shown = null;
  /** "connecting", "live", "away" or "ended" */
  state = "connecting";
  /** @type {MessagePort | null} */
  #port = null;
  /** @type {() => void} */
  #stop = () => {};
  #drawing = false;
  /** How far the browser's clock is ahead of the gateway's, seconds. */
  #clockAhead = 0;

  /** The picture to draw: that of the slider's moment, or the newest. */
  get picture() {
    return (this.shown ?? { picture: this.newest }).picture;
  }

  /** The relation of emulated to wall time: both clocks at one moment, and the scale. @returns {{scale: number, wall: number, emulated: number} | null} */
  get time() {
    return this.picture?.time ?? null;
  }

  /** Emulated seconds since the epoch, now or at the slider's moment. */
  get emulated() {
    if (!this.time) return null;
    const wall = (this.shown ? this.shown.at : Date.now()) / 1000 - this.#clockAhead;
    return this.time.emulated + (wall - this.time.wall) * this.time.scale;
  }

  /** The token that another tab of this console uses, "" if there is none. @returns {Promise<string>} */
  async sharedToken() {
    const port = this.#worker();
    if (!port) return "";
    return new Promise((done) => {
      const timer = setTimeout(() => done(""), 500);
      port.addEventListener("message", (/** @type {MessageEvent} */ { data }) => {
        if (data.type !== "token") return;
        clearTimeout(timer);
        done(data.token);
      });
      port.postMessage({ type: "token?" });
    });
  }

  /** @param {string} token */
  start(token) {
    const port = this.#worker();
    if (port) {
      const listening = new AbortController();
      port.addEventListener("message", (/** @type {MessageEvent} */ { data }) => this.#receive(data), { signal: listening.signal });
      port.postMessage({ type: "follow", token });
      this.#stop = () => { listening.abort(); port.postMessage({ type: "leave", logout: true }); };
      addEventListener("pagehide", () => port.postMessage({ type: "leave" }), { signal: listening.signal });
      // A browser may keep a page that was left in its cache and show it again unchanged.
      addEventListener("pageshow", ({ persisted }) => { if (persisted) port.postMessage({ type: "follow", token }); }, { signal: listening.signal });
    } else this.#stop = follow(token, (message) => this.#receive(message));
  }

  /** Stop following and forget everything, as another user may log in next in this tab. */
  stop() {
    this.#stop();
    this.newest = this.shown = null;
    this.frames = [];
    this.state = "connecting";
    this.#draw();
  }

  /** Show the frame of a moment (ms since the epoch), null for the newest. @param {number | null} at */
  show(at) {
    this.shown = at === null ? null : this.frames.findLast((frame) => frame.at <= at) ?? this.frames[0] ?? null;
    this.#draw();
  }

  /** @returns {MessagePort | null} */
  #worker() {
    if (!("SharedWorker" in globalThis)) return null;
    if (!this.#port) {
      const worker = new SharedWorker("/core/worker.js", { type: "module", name: "cloudmatrix-live" });
      this.#port = worker.port;
      this.#port.start();
    }
    return this.#port;
  }

  /** @param {{type: string, data?: any}} message */
  #receive({ type, data }) {
    if (type === "whole") {
      this.newest = data.picture;
    } else if (type === "patch") {
      if (!this.newest) return;
      this.newest = applyMergePatch(this.newest, data.patch);
    } else if (type === "now") {
      this.#clockAhead = Math.abs(data.ahead) > CLOCK_AHEAD_IGNORED_S ? data.ahead : 0;
      return this.#draw();
    } else if (type === "away" || type === "end") {
      this.state = type === "end" ? "ended" : this.newest ? "away" : "connecting";
      return this.#draw();
    } else return;
    this.state = "live";
    const now = Date.now();
    this.frames.push({ at: now, picture: this.newest });
    const stale = this.frames.findIndex((frame) => frame.at >= now - FRAMES_KEPT_MS);
    if (stale > 0) this.frames.splice(0, stale);
    if (this.frames.length > FRAMES_MAX) this.frames.splice(0, this.frames.length - FRAMES_MAX);
    this.#draw();
  }

  /** Draw views once per animation frame, however many messages came. */
  #draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.dispatchEvent(new Event("frame"));
    });
  }
}

export const live = new Live();

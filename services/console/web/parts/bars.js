// @ts-check
// A workflow as bars: a row for each step, its undo in the same row, retries marked, idle periods folded.
import { h, fill, setText } from "./dom.js";
import { secondsBetween, duration } from "./format.js";

/** A period without any step that is longer than this, and than a tenth of the whole, is folded. */
const IDLE_S = 60;

/** @param {string} name */
const words = (name) => name.replaceAll("_", " ");

export function workflowBars() {
  const element = h("div", { class: "bars" });
  let before = "";
  /** @param {any} operation @param {string} now the emulated time, ISO */
  element.frame = (/** @type {any} */ operation, /** @type {string} */ now) => {
    const text = JSON.stringify(operation) + (operation.done ? "" : now);
    if (text === before) return;
    before = text;
    const steps = operation.steps.filter((/** @type {any} */ step) => step.startedAt);
    const scale = axis(steps, operation, now);
    fill(element, operation.steps.map((/** @type {any} */ step) => row(step, scale, now)), scale.folded.map((fold) =>
      h("p", { class: "fold" }, `${duration(fold.to - fold.from)} without any step not shown`)));
  };
  return element;
}

/** The position of a moment (ms), in percent of the width, with idle periods removed. @param {any[]} steps @param {any} operation @param {string} now */
function axis(steps, operation, now) {
  const end = Date.parse(operation.finishedAt ?? now);
  const begin = Date.parse(operation.startedAt);
  const busy = steps.flatMap((step) => [[Date.parse(step.startedAt), Date.parse(step.finishedAt ?? now)], ...(step.undoStartedAt ? [[Date.parse(step.undoStartedAt), Date.parse(step.undoFinishedAt ?? now)]] : [])]).sort((a, b) => a[0] - b[0]);
  /** @type {{from: number, to: number}[]} */
  const folded = [];
  let reached = begin;
  for (const [from, to] of busy) {
    if (from - reached > Math.max(IDLE_S * 1000, (end - begin) / 10)) folded.push({ from: reached / 1000, to: from / 1000 });
    reached = Math.max(reached, to);
  }
  const hidden = (/** @type {number} */ at) => folded.reduce((sum, { from, to }) => sum + Math.max(0, Math.min(at, to * 1000) - from * 1000), 0);
  const whole = Math.max(1, end - begin - hidden(end));
  return { folded, place: (/** @type {number} */ at) => ((at - begin - hidden(at)) / whole) * 100 };
}

/** @param {any} step @param {{place: (at: number) => number}} scale @param {string} now */
function row(step, scale, now) {
  const track = h("div", { class: "track" });
  const bar = (/** @type {string} */ from, /** @type {string} */ to, /** @type {string} */ tone) => {
    const element = h("div", { class: "bar", data: { tone } });
    const left = Math.max(0, Math.min(100, scale.place(Date.parse(from))));
    element.style.left = `${left}%`;
    element.style.width = `${Math.max(0, Math.min(100 - left, scale.place(Date.parse(to)) - left))}%`;
    track.append(element);
  };
  const ended = step.finishedAt ?? now;
  if (step.startedAt) bar(step.startedAt, ended, step.state === "Failed" ? "bad" : step.finishedAt ? "" : "busy");
  const undone = /Undo|Compensat/.test(step.state);
  if (step.undoStartedAt) bar(step.undoStartedAt, step.undoFinishedAt ?? now, "undo");
  else if (undone && step.startedAt) bar(step.startedAt, ended, "undo");
  if (step.attempts > 1) {
    const retry = h("span", { class: "retry", title: step.message }, `↻${step.attempts}`);
    retry.style.left = `${Math.max(0, Math.min(94, scale.place(Date.parse(ended))))}%`;
    track.append(retry);
  }
  const took = step.startedAt ? duration(secondsBetween(step.startedAt, ended)) : "";
  const state = undone ? "undone" : step.state === "Failed" ? "failed" : step.finishedAt ? took : step.startedAt ? `${took} so far` : "waits";
  track.setAttribute("role", "img");
  track.setAttribute("aria-label", `${words(step.name)}: ${state}${step.attempts > 1 ? `, ${step.attempts} attempts` : ""}${step.message ? `, ${step.message}` : ""}`);
  if (step.message) track.title = step.message;
  const end = h("span", { class: "took" });
  setText(end, state);
  return h("div", { class: "bar-row" }, h("span", {}, words(step.name)), track, end);
}

// @ts-check
// State words with their tone, and conditions as a table.
import { h, setText, set } from "./dom.js";
import { table } from "./table.js";
import { clock } from "./format.js";

const TONES = {
  good: ["Active", "Available", "Ready", "Serving", "Healthy", "Connected", "Up", "Done", "Completed", "Bound", "Open", "On", "PASS", "True", "Spare", "InUse", "Inactive"],
  busy: ["Pending", "Provisioning", "Updating", "Repairing", "Stopping", "Starting", "Deleting", "Deploying", "Draining", "Reserved", "Running", "Waiting", "Verifying", "Cleaning", "Inspecting", "Enrolled", "LayingOut", "Loading", "Queued", "Preparing", "Stale", "Undoing", "Compensating"],
  warn: ["SubHealthy", "Degraded", "Closed", "Servicing", "Stopped", "Suspended", "Off", "STOPPED", "INVALID", "Unknown", "Cancelled"],
  bad: ["Failed", "Unhealthy", "Lost", "Down", "Quarantined", "Retired", "FAIL", "Abandoned", "Injected"],
};
/** @type {Map<string, string>} */
const TONE = new Map(Object.entries(TONES).flatMap(([tone, words]) => words.map((word) => /** @type {[string, string]} */ ([word, tone]))));

/** @param {string} word */
export const tone = (word) => TONE.get(word) ?? "";

/** @param {string} word */
export function chip(word) {
  const element = h("span", { class: "chip-state", data: { tone: tone(word) } }, word);
  element.update = (/** @type {string} */ now) => { setText(element, now); set(element, "data-tone", tone(now)); };
  return element;
}

/** Show a page whose resource was found. @param {HTMLElement} problem @param {HTMLElement} body @param {HTMLElement} state its chip */
export function showFound(problem, body, state) {
  setText(problem, "");
  body.hidden = state.hidden = false;
}

/** Show an error; if the resource does not exist (any more), hide its buttons and tables. @param {any} wrong @param {HTMLElement} problem @param {HTMLElement} body */
export function showError(wrong, problem, body) {
  setText(problem, wrong.message);
  if (wrong.status === 404) body.hidden = true;
}

/** The table of conditions, abnormal ones first. */
export function conditions() {
  const ill = (/** @type {any} */ each) => (["Degraded", "Progressing"].includes(each.type) ? each.status === "True" : each.status === "False");
  const shown = table("Conditions", [
    { title: "Condition", cell: (each) => h("b", { class: ill(each) ? (each.type === "Progressing" ? "warn" : "bad") : "" }, each.type) },
    { title: "Status", cell: (each) => each.status },
    { title: "Reason", cell: (each) => each.reason },
    { title: "Message", cell: (each) => each.message },
    { title: "Since", cell: (each) => h("time", { datetime: each.lastTransitionTime }, clock(each.lastTransitionTime)) },
  ], (each) => each.type);
  const frame = shown.frame;
  shown.frame = (/** @type {any[]} */ all) => frame([...all].sort((a, b) => Number(ill(b)) - Number(ill(a))));
  return shown;
}

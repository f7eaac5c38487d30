// @ts-check
// One run of a scenario: its phases, its log, its expectations, and the verdict.
import { call, get } from "../core/api.js";
import { h, fill, setText, sync } from "../parts/dom.js";
import { action, command, notAdmin } from "../parts/action.js";
import { chip, showError, showFound } from "../parts/state.js";
import { table } from "../parts/table.js";
import { clock, duration } from "../parts/format.js";

export const title = (/** @type {string[]} */ [name]) => `Run ${name}`;

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  const [name] = page.params;
  /** @type {any} */
  let run = null;
  const heading = h("h1", {}, name);
  const state = chip("");
  const verdict = h("p", { class: "verdict", role: "status" });
  const message = h("p", { class: "muted" });
  const problem = h("p", { class: "problem", role: "alert" });
  const entries = h("ol", { class: "timeline" });
  const replay = h("div", {});
  const stop = action(() => ({ label: "Stop", danger: true, off: notAdmin() || (run && run.state !== "Completed" ? "" : "It has ended"), does: "The run is rolled back and ends.", command: `matrixctl scenario stop ${name}`, run: () => call("POST", `compute/v1/scenario-runs/${name}:stop`), done: () => void look() }));
  const phases = table("Phases", [{ title: "Phase", cell: (each) => each.name }, { title: "Began", cell: (each) => clock(each.startedAt) }, { title: "Ended", cell: (each) => clock(each.finishedAt) }], (each) => each.name);
  const outcomes = table("Expected", [
    { title: "Held", cell: (each) => h("b", { class: each.passed ? "good" : "bad" }, each.passed ? "✓" : "×") }, { title: "What", cell: (each) => each.name },
    { title: "After", cell: (each) => (each.seconds === undefined ? "–" : duration(each.seconds)), number: true }, { title: "Within", cell: (each) => duration(each.withinS), number: true }, { title: "Seen", cell: (each) => each.message },
  ], (each) => each.name, { empty: "No results yet." });
  const body = h("div", { class: "stack", hidden: true }, h("section", { class: "card stack" }, verdict, message, stop, replay),
    h("div", { class: "columns" }, h("section", { class: "card" }, phases), h("section", { class: "card" }, outcomes)), h("section", { class: "card stack", aria: { labelledby: "happened" } }, h("h2", { id: "happened" }, "What happened"), entries));
  fill(root, h("div", { class: "stack" }, h("div", { class: "heading" }, heading, state), problem, body));

  async function look() {
    try {
      run = await get(`compute/v1/scenario-runs/${name}`, page.signal);
      showFound(problem, body, state);
    } catch (wrong) {
      if (!page.signal.aborted) showError(wrong, problem, body);
      return;
    }
    setText(heading, run.title || run.scenario || name);
    state.update(run.state);
    setText(verdict, run.verdict ? `Verdict: ${run.verdict}` : run.phase ? `Now: ${run.phase}` : "Queued");
    verdict.className = `verdict ${run.verdict === "PASS" ? "good" : run.verdict ? "bad" : ""}`;
    setText(message, run.message ?? "");
    phases.frame(run.phases ?? []);
    outcomes.frame(run.expectations ?? []);
    stop.frame();
    if (!replay.firstChild && run.replay) fill(replay, command(run.replay));
    sync(entries, (run.entries ?? []).map((/** @type {any} */ each, /** @type {number} */ at) => ({ ...each, at })), (each) => String(each.at), (each) =>
      h("li", {}, h("time", {}, duration(each.atS)), h("span", { class: "mark", aria: { hidden: true } }, /fault|strike|inject/i.test(each.what) ? "×" : "·"), h("div", {}, h("b", {}, each.what), ` ${each.about} `, each.message)));
  }
  page.poll(1000, look);
  return {};
}

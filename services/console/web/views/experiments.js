// @ts-check
// Reports of experiments: those stored in the stack, and any file with a report's JSON.
import { list } from "../core/api.js";
import { setQuery } from "../core/router.js";
import { h, fill, link, setText } from "../parts/dom.js";
import { command } from "../parts/action.js";
import { findings } from "../parts/findings.js";
import { table } from "../parts/table.js";
import { clock } from "../parts/format.js";

export const title = () => "Experiments";

/** Where a report's page is. @param {{project: string, name: string}} report */
export const address = ({ project, name }) => `/experiments/${encodeURIComponent(project)}/${encodeURIComponent(name)}`;

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  const problem = h("p", { class: "problem", role: "alert" });
  const refused = h("p", { class: "problem", role: "alert" });
  const opened = h("div", { class: "stack" });
  let wanted = page.query.get("search") ?? "";
  /** @type {any[]} */
  let kept = [];
  const search = h("input", { type: "search", id: "search", value: wanted, placeholder: "name, experiment or title" });
  const reports = table("Kept reports", [
    { title: "Name", cell: (each) => link(address(each), each.name), sort: (each) => each.name },
    { title: "Experiment", cell: (each) => each.experiment, sort: (each) => each.experiment },
    { title: "About", cell: (each) => each.title, sort: (each) => each.title },
    { title: "Project", cell: (each) => each.project, sort: (each) => each.project },
    { title: "By", cell: (each) => each.author, sort: (each) => each.author },
    { title: "Kept at", cell: (each) => h("time", { datetime: each.updatedAt }, clock(each.updatedAt)), sort: (each) => each.updatedAt },
  ], (each) => `${each.project}/${each.name}`, { empty: "No reports yet. Add --keep NAME to an experiment.", quiet: true });
  search.addEventListener("input", () => { wanted = search.value; setQuery({ search: wanted }); draw(); });
  const file = h("input", { type: "file", id: "report", accept: ".json,application/json", multiple: true, onchange: async () => {
    setText(problem, "");
    for (const each of file.files ?? []) {
      try {
        opened.prepend(h("section", { class: "card stack" }, h("h2", {}, each.name), findings(each.name, JSON.parse(await each.text()))));
      } catch (wrong) {
        setText(problem, `${each.name} is not a report: ${/** @type {Error} */ (wrong).message}`);
      }
    }
  } });
  fill(root, h("div", { class: "stack" }, h("h1", {}, "Experiments"),
    h("section", { class: "card stack" }, h("p", {}, "An experiment serves a trace in virtual time and reports the results; it needs no running stack. From a terminal:"),
      command("matrixctl experiment run --generate 2000 --nodes 8 --lose-node-at 120 --keep eight-nodes"), command("matrixctl experiment sweep --help")),
    h("section", { class: "card stack" }, h("div", { class: "heading" }, h("h2", {}, "Kept reports"), h("div", { class: "toolbar" }, h("label", { for: "search" }, "Search"), search)), refused, reports),
    h("section", { class: "card stack" }, h("div", { class: "field" }, h("label", { for: "report" }, "Show the report in a file (it stays in this browser)"), file), problem), opened));

  function draw() {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    reports.frame(kept.filter((each) => words.every((/** @type {string} */ word) => `${each.name} ${each.experiment} ${each.title} ${each.project}`.toLowerCase().includes(word))));
  }

  page.poll(5000, async () => {
    try {
      kept = await list("infer/v1/reports?orderBy=createdAt+desc", page.signal);
      setText(refused, "");
    } catch (wrong) {
      if (!page.signal.aborted) setText(refused, /** @type {Error} */ (wrong).message);
    }
    draw();
  });
  return {};
}

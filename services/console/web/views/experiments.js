// @ts-check
// Reports of experiments: they run in virtual time from the command line; their JSON is read here and shown.
import { h, fill, say } from "../parts/dom.js";
import { command } from "../parts/action.js";
import { table } from "../parts/table.js";
import { number } from "../parts/format.js";

export const title = () => "Experiments";

/** @param {HTMLElement} root */
export function mount(root) {
  const problem = h("p", { class: "problem", role: "alert" });
  const reports = h("div", { class: "stack" });
  const file = h("input", { type: "file", id: "report", accept: ".json,application/json", multiple: true, onchange: async () => {
    say(problem, "");
    for (const each of file.files ?? []) {
      try {
        reports.prepend(report(each.name, JSON.parse(await each.text())));
      } catch (wrong) {
        say(problem, `${each.name} is no report: ${/** @type {Error} */ (wrong).message}`);
      }
    }
  } });
  fill(root, h("div", { class: "stack" }, h("h1", {}, "Experiments"),
    h("section", { class: "card stack" }, h("p", {}, "An experiment serves a trace in virtual time and reports; nothing has to run for it. From a terminal:"),
      command("matrixctl experiment run --generate 2000 --nodes 8 --lose-node-at 120 -o json > report.json"), command("matrixctl experiment sweep --help"),
      h("div", { class: "field" }, h("label", { for: "report" }, "Show reports (they stay in this browser)"), file), problem), reports));
  return {};
}

/** @param {string} name @param {any} document */
function report(name, document) {
  /** @type {{field: string, value: string}[]} */
  const figures = [];
  /** @type {{field: string, rows: any[]}[]} */
  const lists = [];
  walk(document, "", figures, lists);
  if (!figures.length && !lists.length) throw new Error("it holds no figures");
  const facts = table(`Figures of ${name}`, [{ title: "Field", cell: (each) => each.field, sort: (each) => each.field }, { title: "Value", cell: (each) => each.value, number: true }], (each) => each.field);
  facts.frame(figures.slice(0, 200));
  return h("section", { class: "card stack" }, h("h2", {}, name), facts, lists.slice(0, 4).map(({ field, rows }) => {
    const keys = Object.keys(rows[0]).filter((key) => typeof rows[0][key] !== "object").slice(0, 8);
    const shown = table(field, keys.map((key) => ({ title: key, cell: (each) => text(each[key]), number: typeof rows[0][key] === "number", sort: (each) => each[key] })), (each) => String(each.at), {});
    shown.frame(rows.slice(0, 100).map((each, at) => ({ ...each, at })));
    return shown;
  }));
}

/** @param {any} value @param {string} path @param {{field: string, value: string}[]} figures @param {{field: string, rows: any[]}[]} lists */
function walk(value, path, figures, lists) {
  if (Array.isArray(value)) {
    if (value.length && typeof value[0] === "object" && value[0] !== null) lists.push({ field: path || "items", rows: value });
    return;
  }
  if (typeof value === "object" && value !== null) for (const [key, each] of Object.entries(value)) walk(each, path ? `${path}.${key}` : key, figures, lists);
  else if (value !== null && value !== undefined) figures.push({ field: path, value: text(value) });
}

/** @param {any} value */
const text = (value) => (typeof value === "number" ? number(value, Number.isInteger(value) ? 0 : 3) : String(value));

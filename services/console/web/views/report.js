// @ts-check
// One stored report: the command that made it, its plots and figures, and its comparison with another.
import { resourcePath, call, get, list } from "../core/api.js";
import { navigate, setQuery } from "../core/router.js";
import { h, fill, link, setText } from "../parts/dom.js";
import { action, command, notEditor } from "../parts/action.js";
import { findings, text } from "../parts/findings.js";
import { plot } from "../parts/plot.js";
import { number } from "../parts/format.js";
import { chip, showError, showFound } from "../parts/state.js";
import { table } from "../parts/table.js";

export const title = (/** @type {string[]} */ [, name]) => `Report ${name}`;

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  const [project, name] = page.params;
  const key = `${project}/${name}`;
  let other = page.query.get("with") ?? "";
  const problem = h("p", { class: "problem", role: "alert" });
  const about = h("p", {});
  const kind = chip("");
  const made = h("div", {});
  const download = h("button", { hidden: true }, "Download as one file");
  const choice = h("select", { id: "with" });
  const chooser = h("div", { class: "field" }, h("label", { for: "with" }, "Compare with"), choice);
  const changes = h("div", { class: "stack" });
  const plots = h("div", { class: "charts" });
  const found = h("section", { class: "card stack" });
  /** @type {any[]} */
  let drawn = [];
  const remove = action(() => ({ label: "Delete", danger: true, off: notEditor(), does: "It is deleted for the whole project.", command: `matrixctl report delete ${name}${project === "default" ? "" : ` --project ${project}`}`, run: () => call("DELETE", resourcePath("infer/v1/reports", key)), done: () => navigate("/experiments") }));
  const body = h("div", { class: "stack", hidden: true },
    h("section", { class: "card stack" }, about, made, h("div", { class: "actions" }, download, remove), chooser), changes, h("h2", { class: "hidden" }, "Plots"), plots, found);
  fill(root, h("div", { class: "stack" }, h("div", { class: "heading" }, h("h1", {}, name), kind, link("/experiments", "All reports")), problem, body));
  choice.addEventListener("change", () => { other = choice.value; setQuery({ with: other }); page.retry(show); });

  /** @type {any} the report's content, once it came */
  let own = null;

  async function show() {
    try {
      if (!own) {
        own = await get(resourcePath("infer/v1/reports", key, "/content"), page.signal);
        describe(own);
        draw(own, null);
        fill(found, h("h2", {}, "Found"), findings(name, own.document));
      }
      showFound(problem, body, kind);
    } catch (wrong) {
      showError(wrong, problem, body);
      throw wrong;
    }
    const asked = other;
    try {
      const beside = asked ? await get(resourcePath("infer/v1/reports", asked, "/content"), page.signal) : null;
      const compared = asked ? await get(`${resourcePath("infer/v1/reports", key, "/comparison")}&with=${encodeURIComponent(asked)}`, page.signal) : null;
      if (asked !== other) return; // another was chosen meanwhile
      fill(changes, compared ? comparison(compared) : null);
      draw(own, beside);
    } catch (wrong) {
      if (asked !== other) return;
      setText(problem, /** @type {Error} */ (wrong).message);
      fill(changes);
      draw(own, null);
      throw wrong;
    }
  }

  /** @param {any} content */
  function describe(content) {
    setText(about, content.title);
    kind.update(content.experiment);
    chooser.hidden = content.experiment !== "run"; // others cannot be compared
    fill(made, content.command ? command(content.command) : null);
    download.hidden = !content.html;
    download.onclick = () => {
      // Only offered as a download and never shown here, since its HTML is not trusted.
      const file = URL.createObjectURL(new Blob([content.html], { type: "text/html" }));
      h("a", { href: file, download: `${name}.html` }).click();
      setTimeout(() => URL.revokeObjectURL(file), 10_000);
    };
  }

  /** @param {any} compared */
  function comparison({ before, after, changes: all }) {
    const rows = table(`From ${before.name} to ${after.name}`, [
      { title: "Figure", cell: (each) => each.name, sort: (each) => each.name },
      { title: before.name, cell: (each) => text(each.before), number: true, sort: (each) => each.before },
      { title: after.name, cell: (each) => text(each.after), number: true, sort: (each) => each.after },
      { title: "Change", cell: (each) => (each.part == null ? "" : `${each.part > 0 ? "+" : ""}${number(each.part * 100, 1)} %`), number: true, sort: (each) => each.part ?? 0 },
      { title: "For", cell: (each) => (each.better == null ? "" : h("b", { class: each.better ? "good" : "bad" }, each.better ? "the better" : "the worse")) },
    ], (each) => each.name, { empty: "No differences." });
    rows.frame(all.filter((/** @type {any} */ each) => each.before !== each.after));
    return h("section", { class: "card" }, rows);
  }

  /** @param {any} content @param {any} beside */
  function draw(content, beside) {
    for (const each of drawn) each.close();
    drawn = content.plots.map((/** @type {any} */ each) => {
      const same = beside?.plots.find((/** @type {any} */ one) => one.title === each.title && one.x === each.x);
      return plot(each.title, each.x, each.y, [...lines(each, 0, beside ? content.name : ""), ...(same ? lines(same, 1, beside.name) : [])]);
    });
    fill(plots, drawn);
  }

  async function choices() {
    const runs = (await list("infer/v1/reports?filter=experiment%3Drun", page.signal)).filter((each) => `${each.project}/${each.name}` !== key);
    fill(choice, h("option", { value: "" }, runs.length ? "nothing" : "no other run is stored"), runs.map((each) => h("option", { value: `${each.project}/${each.name}` }, each.project === project ? each.name : `${each.project}/${each.name}`)));
    choice.value = other;
  }

  page.retry(show);
  choices().catch((wrong) => { if (!page.signal.aborted) setText(problem, wrong.message); });
  return { close: () => drawn.forEach((each) => each.close()) };
}

/** @param {any} one @param {number} group @param {string} of */
const lines = (one, group, of) => Object.entries(one.lines).map(([name, points]) => ({ name: of ? `${name}, ${of}` : name, points, group }));

// @ts-check
// A plane as a matrix: a lost chip is a dark column, a faulty node a dark row, a sub-plane one of seven blocks.
import { get } from "../core/api.js";
import { live } from "../core/live.js";
import { navigate, setQuery } from "../core/router.js";
import { h, fill, setText, set, link, plural } from "../parts/dom.js";
import { matrixCanvas } from "../parts/matrix.js";
import { table } from "../parts/table.js";
import { compareNames, number } from "../parts/format.js";

export const title = () => "Fabric";

const PLANES = { ub: "UB, 48 nodes by 112 L2 chips", rdma: "RDMA, 16 ports a node", vpc: "VPC, a Qingtian card a node" };
const WORDS = { u: "up", d: "degraded", x: "down", o: "out of use" };

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  let plane = page.query.get("plane") ?? "ub";
  let supernode = page.query.get("supernode") ?? "";
  let all = page.query.get("show") === "all";
  let column = page.query.get("column") ?? "";
  const planes = Object.entries(PLANES).map(([name, text]) => h("button", { data: { plane: name }, title: text, onclick: () => { plane = name; column = ""; setQuery({ plane, column: "" }); void look(); } }, name.toUpperCase()));
  const pick = h("select", { id: "supernode", onchange: () => { supernode = pick.value; setQuery({ supernode }); void look(); } });
  const summary = h("p", { role: "status" });
  const problem = h("p", { class: "problem", role: "alert" });
  const canvas = matrixCanvas((cell) => cell && matrix && navigate(`/nodes/${matrix.nodes[cell.row]}`));
  const every = h("input", { type: "checkbox", id: "every", checked: all, onchange: () => { all = every.checked; setQuery({ show: all ? "all" : null }); draw(); } });
  const rows = table("Links", [
    { title: "Link", cell: (each) => h("span", { class: "mono" }, link(`/nodes/${each.node}`, each.node), `.${each.port}`), sort: (each) => each.node + each.port },
    { title: "Leads to", cell: (each) => each.to, sort: (each) => each.to },
    { title: "Sub-plane", cell: (each) => each.subPlane, number: true, sort: (each) => each.subPlane },
    { title: "State", cell: (each) => h("span", { class: each.state === "u" ? "" : "bad" }, WORDS[/** @type {"u"} */ (each.state)]), sort: (each) => each.state },
    { title: "Used", cell: (each) => (each.percent === undefined ? "–" : `${each.percent} %`), number: true, sort: (each) => each.percent ?? -1 },
  ], (each) => `${each.node}.${each.port}`, { empty: "Every link is up and idle." });
  /** @type {any} */
  let matrix = null;
  fill(root, h("div", { class: "stack" },
    h("div", { class: "heading" }, h("h1", {}, "Fabric"), summary),
    h("div", { class: "toolbar" }, h("div", { class: "toolbar", role: "group", aria: { label: "Plane" } }, planes), h("label", { for: "supernode" }, "Supernode"), pick), problem,
    h("section", { class: "card", aria: { label: "Matrix" } }, canvas), scale(),
    h("section", { class: "card stack" }, h("div", { class: "toolbar" }, every, h("label", { for: "every" }, "Show all links, not only those not up and the busiest")), rows)));

  const address = () => `link/v1/planes/${plane}/matrix?supernode=${encodeURIComponent(supernode)}`;

  async function look() {
    if (!supernode) return;
    const asked = address();
    try {
      const found = await get(asked, page.signal);
      if (asked !== address()) return; // another was chosen meanwhile
      matrix = found;
      setText(problem, "");
      draw();
    } catch (wrong) {
      if (!page.signal.aborted) setText(problem, /** @type {Error} */ (wrong).message);
    }
  }

  function draw() {
    if (!matrix) return;
    for (const button of planes) set(button, "aria-pressed", String(button.dataset.plane === plane));
    canvas.querySelector("canvas").setAttribute("aria-label", `${plane.toUpperCase()} plane of ${supernode}, ${matrix.nodes.length} nodes by ${matrix.ports.length} ports`);
    canvas.frame(matrix);
    if (column) {
      const found = matrix.switches.indexOf(column);
      column = "";
      if (found >= 0) canvas.choose(Math.max(0, matrix.states.findIndex((/** @type {string} */ row) => row[found] !== "u")), found);
    }
    const letters = matrix.states.join("");
    const counts = Object.entries(WORDS).map(([letter, word]) => ({ count: letters.split(letter).length - 1, word }));
    const shown = counts.filter(({ count, word }) => count || word === WORDS.u).map(({ count, word }) => `${number(count)} ${word}`);
    setText(summary, `${plural(letters.length, "link")}: ${shown.join(", ")}`);
    const links = matrix.nodes.flatMap((/** @type {string} */ node, /** @type {number} */ row) => matrix.ports.map((/** @type {string} */ port, /** @type {number} */ at) => (
      { node, port, to: matrix.switches[at], subPlane: matrix.subPlanes[at], state: matrix.states[row][at], percent: matrix.utilisation[row]?.[at] })));
    const broken = links.filter((/** @type {any} */ each) => each.state !== "u");
    const busiest = links.filter((/** @type {any} */ each) => each.state === "u" && each.percent).sort((/** @type {any} */ a, /** @type {any} */ b) => b.percent - a.percent).slice(0, 20);
    rows.frame(all ? links : [...broken, ...busiest]);
  }

  page.poll(1000, look);
  return {
    close: canvas.close,
    frame: (/** @type {any} */ picture) => {
      const names = Object.keys(picture.supernodes).sort(compareNames);
      if (!picture.supernodes[supernode]) supernode = names[0] ?? "";
      if (pick.children.length !== names.length) fill(pick, names.map((each) => h("option", { value: each, selected: each === supernode }, each)));
    },
  };
}

function scale() {
  const heat = ["idle", "under 20 %", "under 50 %", "under 80 %", "80 % and more"].map((text, step) => {
    const swatch = h("span", { class: "port", aria: { hidden: true } });
    swatch.style.background = `var(--heat-${step})`;
    return h("li", {}, swatch, text);
  });
  return h("ul", { class: "legend", aria: { label: "Legend" } }, heat, [["x", "×", "down"], ["d", "!", "degraded"], ["o", "–", "out of use"]].map(([state, mark, text]) => h("li", {}, h("span", { class: "port", data: { s: state }, aria: { hidden: true } }, mark), text)));
}

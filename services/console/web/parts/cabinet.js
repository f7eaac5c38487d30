// @ts-check
// A cabinet: four nodes of eight NPUs. The fill shows the state, the outline the holder, and a mark the state without colour.
import { h, setText, set, link } from "./dom.js";
import { oneTabStop } from "./arrows.js";
import { STATES, hue, compareNames, short } from "./format.js";
import { navigate } from "../core/router.js";

/** The rack of a supernode: one stop for Tab, arrow keys from NPU to NPU. */
class Rack extends HTMLElement {
  /** @type {Map<string, any>} */
  #rows = new Map();
  /** @type {any} the cabinets it was built of: the same object for as long as none changed */
  #cabinets = null;
  /** @type {any} */
  #supernode = null;
  /** @type {any} */
  #closed = null;
  #cellsChanged = oneTabStop(this, "button.npu", 8);

  connectedCallback() {
    this.addEventListener("click", (event) => {
      const cell = event.target instanceof Element ? event.target.closest("button.npu") : null;
      if (cell instanceof HTMLButtonElement) navigate(`/nodes/${cell.dataset.node}?npu=${cell.dataset.npu}`);
    });
  }

  /** @param {any} supernode of the live picture @param {Record<string, string>} closed cabinets closed to new allocations */
  frame(supernode, closed) {
    if (supernode === this.#supernode && closed === this.#closed) return;
    if (supernode.cabinets !== this.#cabinets) this.#build(supernode);
    this.#supernode = supernode;
    this.#closed = closed;
    for (const [node, row] of this.#rows) row.frame(supernode.states[node] ?? "", supernode.holders[node] ?? "");
    for (const cabinet of this.children) /** @type {any} */ (cabinet).frame?.(supernode, closed);
  }

  /** @param {any} supernode */
  #build(supernode) {
    this.#cabinets = supernode.cabinets;
    this.#rows.clear();
    const cabinets = Object.entries(supernode.cabinets).sort(([one], [other]) => compareNames(one, other)).map(([name, nodes]) => {
      const total = h("span", { class: "total" });
      const rows = nodes.map((/** @type {string} */ node) => {
        const row = nodeRow(node);
        this.#rows.set(node, row);
        return row;
      });
      const element = h("section", { class: "cabinet", aria: { label: `Cabinet ${name}` } },
        h("header", {}, h("h3", {}, name.slice(name.indexOf("-") + 1)), total), rows);
      element.frame = (/** @type {any} */ current, /** @type {Record<string, string>} */ closed) => {
        const letters = nodes.map((/** @type {string} */ node) => current.states[node] ?? "").join("");
        const free = letters.split("f").length - 1;
        setText(total, closed[name] ? `${closed[name].toLowerCase()} · ${free} free` : `${free} of ${letters.length} free`);
        element.classList.toggle("closed", Boolean(closed[name]));
      };
      return element;
    });
    this.replaceChildren(...cabinets);
    this.#cellsChanged();
  }
}
customElements.define("cm-rack", Rack);

/** @param {string} node */
function nodeRow(node) {
  const name = link(`/nodes/${node}`, node.slice(node.lastIndexOf("-") + 1));
  name.title = node;
  name.tabIndex = -1;
  const holder = h("span", { class: "holder" });
  const cells = Array.from({ length: 8 }, (_, npu) => h("button", { class: "npu", tabIndex: -1, data: { node, npu: String(npu) } }));
  const box = h("span", { class: "npus" }, cells);
  const row = h("div", { class: "node" }, name, box, holder);
  let shownStates = "";
  /** @type {any} */
  let shownHolder = null;
  row.frame = (/** @type {string} */ states, /** @type {string | string[]} */ held) => {
    if (states === shownStates && held === shownHolder) return;
    shownStates = states;
    shownHolder = held;
    const whole = typeof held === "string" ? held : "";
    const shared = Array.isArray(held) ? new Set(held.filter(Boolean)) : new Set();
    setText(holder, whole ? short(whole) : shared.size === 1 ? short([...shared][0]) : shared.size ? `${shared.size} share it` : "");
    set(box, "data-hue", whole ? hue(whole) : null);
    set(holder, "data-hue", whole ? hue(whole) : null);
    cells.forEach((cell, npu) => {
      const letter = states[npu];
      cell.hidden = letter === undefined;
      if (letter === undefined) return;
      const own = Array.isArray(held) ? held[npu] : whole;
      const [word, mark] = STATES[letter];
      set(cell, "data-s", letter);
      set(cell, "data-hue", Array.isArray(held) && own ? hue(own) : null);
      set(cell, "aria-label", `${node} NPU ${npu}: ${word}${own ? `, ${short(own)}` : ""}`);
      setText(cell, mark);
    });
  };
  return row;
}

/** The legend of fills and marks. */
export function legend() {
  return h("ul", { class: "legend", aria: { label: "Legend" } },
    Object.entries(STATES).map(([letter, [word, mark]]) =>
      h("li", {}, h("span", { class: "npu", data: { s: letter }, aria: { hidden: true } }, mark), word)),
    h("li", {}, h("span", { class: "npus sample", data: { hue: "0" }, aria: { hidden: true } }), "outline: who holds it"));
}

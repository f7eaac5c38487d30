// @ts-check
// The four communication cabinets with their L2 chips, and how many of a chip's 48 cables are down or degraded.
import { h, setText, set, sync } from "./dom.js";
import { oneTabStop } from "./arrows.js";
import { navigate } from "../core/router.js";
import { compareNames } from "./format.js";

/** As many as `.chips` in parts.css has columns. */
const CHIPS_IN_ROW = 14;

/** The communication cabinets: one stop for Tab, arrow keys from chip to chip. */
export function switchCabinets() {
  const element = h("div", { class: "switches" });
  const cellsChanged = oneTabStop(element, "button.chip", CHIPS_IN_ROW);
  element.frame = (/** @type {any} */ matrix) => {
    /** @type {Map<string, any[]>} */
    const cabinets = new Map();
    matrix.switches.forEach((/** @type {string} */ name, /** @type {number} */ column) => {
      if (!name) return;
      const letters = matrix.states.map((/** @type {string} */ row) => row[column]).join("");
      const down = letters.split("x").length - 1;
      const degraded = letters.split("d").length - 1;
      const state = down >= letters.length ? "x" : down || degraded ? "d" : letters.includes("o") ? "o" : "u";
      const cabinet = matrix.switchCabinets[column];
      cabinets.set(cabinet, [...(cabinets.get(cabinet) ?? []), { name, state, down, degraded, supernode: matrix.supernode, subPlane: matrix.subPlanes[column] }]);
    });
    sync(element, [...cabinets].sort(([one], [other]) => compareNames(one, other)), ([name]) => name, cabinetOf);
    cellsChanged();
  };
  return element;
}

/** @param {[string, any[]]} entry */
function cabinetOf([name]) {
  const total = h("span", { class: "total" });
  const chips = h("div", { class: "chips" });
  const section = h("section", { class: "cabinet", aria: { label: `Communication cabinet ${name}` } },
    h("header", {}, h("h3", {}, name.slice(name.indexOf("-") + 1)), total), chips);
  section.update = (/** @type {[string, any[]]} */ [, all]) => {
    const bad = all.filter((chip) => chip.state !== "u").length;
    setText(total, `${all.length} L2 chips${bad ? `, ${bad} not whole` : ""}`);
    sync(chips, all, (chip) => chip.name, (chip) => {
      const cell = h("button", { class: "chip", tabIndex: -1, onclick: () => navigate(`/fabric?supernode=${chip.supernode}&plane=ub&column=${chip.name}`) });
      cell.update = (/** @type {any} */ now) => {
        set(cell, "data-s", now.state);
        const text = { u: "up", x: "down", o: "out of use", d: `${now.down} links down, ${now.degraded} degraded` }[/** @type {"u"} */ (now.state)];
        set(cell, "aria-label", `L2 chip ${now.name}: ${text}`);
        set(cell, "title", `${now.name}: ${text}`);
        setText(cell, { u: "", x: "×", o: "–", d: "!" }[/** @type {"u"} */ (now.state)] ?? "");
      };
      return cell;
    });
  };
  return section;
}

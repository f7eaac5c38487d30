// @ts-check
// All supernodes as small pictures, one of them selected: 48 nodes by 8 NPUs on a canvas each, with the free NPUs below.
import { h, setText, set, setProperty, sync } from "./dom.js";
import { colours } from "./colours.js";
import { compareNames } from "./format.js";

/** @param {(name: string) => void} choose */
export function supernodeTiles(choose) {
  const element = h("div", { class: "tiles", role: "group", aria: { label: "Supernodes" } });
  element.frame = (/** @type {any} */ picture, /** @type {string} */ chosen) => {
    const all = Object.entries(picture.supernodes).sort(([one], [other]) => compareNames(one, other));
    setProperty(element, "hidden", all.length < 2);
    if (element.hidden) return;
    sync(element, all.map(([name, supernode]) => ({ name, supernode, chosen: name === chosen, block: picture.capacity.supernodes?.[name] })), ({ name }) => name, () => tile(choose));
  };
  return element;
}

/** @param {(name: string) => void} choose */
function tile(choose) {
  const canvas = h("canvas", { width: 96, height: 32 });
  const name = h("b", {});
  const free = h("span", {});
  const button = h("button", { class: "tile" }, canvas, h("span", { class: "caption" }, name, free));
  button.addEventListener("click", () => choose(button.dataset.name ?? ""));
  /** @type {string[]} */
  let nodes = [];
  /** @type {any} */
  let cabinets = null;
  /** @type {any} */
  let states = null;
  let scheme = "";
  let drawn = "";
  button.update = (/** @type {{name: string, supernode: any, chosen: boolean, block: number | undefined}} */ item) => {
    const palette = colours();
    set(button, "aria-pressed", String(item.chosen));
    if (item.supernode.states === states && palette.scheme === scheme) return;
    if (item.supernode.cabinets !== cabinets || Object.keys(item.supernode.states).length !== nodes.length) {
      nodes = Object.keys(item.supernode.states).sort();
      cabinets = item.supernode.cabinets;
    }
    const letters = nodes.map((node) => item.supernode.states[node].padEnd(8)).join("");
    const before = palette.scheme === scheme && letters.length === drawn.length ? drawn : "";
    states = item.supernode.states;
    scheme = palette.scheme;
    if (drawn === letters && before) return;
    drawn = letters;
    button.dataset.name = item.name;
    const count = letters.split("f").length - 1;
    const bad = letters.split(/[xd]/).length - 1;
    setText(name, item.name);
    setText(free, `${count} free${bad ? `, ${bad} !` : ""}`);
    set(button, "aria-label", `Supernode ${item.name}: ${count} of ${letters.trim().length} NPUs free${bad ? `, ${bad} faulty or degraded` : ""}`);
    paint(canvas, letters, before, palette);
  };
  return button;
}

/** Four nodes of a cabinet side by side, a cabinet below the other two by two; only what differs from before, all where that is "". @param {HTMLCanvasElement} canvas @param {string} letters @param {string} before @param {any} palette */
function paint(canvas, letters, before, palette) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  if (!before) context.clearRect(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < letters.length; at++) {
    if (letters[at] === before[at]) continue;
    const node = at >> 3;
    const cabinet = node >> 2;
    context.fillStyle = palette.states[letters[at]] ?? palette.states.o;
    const x = (cabinet % 6) * 16 + (at & 7) * 2;
    const y = Math.floor(cabinet / 6) * 16 + (node & 3) * 4;
    context.fillRect(x, y, at % 8 === 7 ? 1 : 2, 3);
  }
}

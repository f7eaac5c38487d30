// @ts-check
// A plane as a matrix on a canvas: a row for each node, a column for each port, and a cell that can be walked to by keys.
import { h, setText } from "./dom.js";
import { clearCanvas, onRedraw } from "./canvas.js";

const HOW = "Point at a cell, or use the arrow keys.";
const WORDS = { u: "up", d: "degraded", x: "down", o: "out of use" };

/** @param {(cell: {row: number, column: number} | null) => void} chosen */
export function matrixCanvas(chosen) {
  const canvas = h("canvas", { class: "matrix", tabIndex: 0, role: "application", aria: { roledescription: "matrix, arrow keys move" } });
  const label = h("p", { class: "mono muted", role: "status" }, HOW);
  const element = h("figure", { class: "stack" }, canvas, label);
  /** @type {any} */
  let shown = null;
  let size = { x: 1, y: 1, left: 0, top: 0, gap: 0 };
  let at = { row: -1, column: -1 };

  element.frame = (/** @type {any} */ matrix) => {
    // A cell of another plane or supernode is none of this one.
    const other = shown && (shown.plane !== matrix.plane || shown.supernode !== matrix.supernode);
    shown = matrix;
    if (other) at = { row: -1, column: -1 };
    describeCell();
    draw();
  };
  element.choose = (/** @type {number} */ row, /** @type {number} */ column) => { at = { row, column }; describeCell(); draw(); };

  function draw() {
    if (!shown) return;
    const rows = shown.nodes.length;
    const columns = shown.ports.length;
    const width = Math.max(300, Math.round(element.clientWidth || 900));
    const planes = new Set(shown.subPlanes).size;
    const changes = shown.subPlanes.filter((/** @type {number} */ plane, /** @type {number} */ column) => column && plane !== shown.subPlanes[column - 1]).length;
    const blocks = changes === planes - 1; // else ports of several sub-planes lie between each other, as RDMA's do
    const gaps = blocks ? changes : 0;
    const x = Math.max(2, Math.min(26, (width - 62 - gaps * 6) / columns));
    const y = Math.max(8, Math.min(14, x * 1.4));
    size = { x, y, left: 56, top: 4, gap: blocks ? 6 : 0 };
    const height = Math.ceil(size.top * 2 + rows * y + 11 * 3);
    const { context, palette } = clearCanvas(canvas, width, height);
    canvas.style.height = `${height}px`;
    context.font = "10px ui-monospace, monospace";
    context.textBaseline = "middle";
    for (let row = 0; row < rows; row++) {
      const top = rowTop(row);
      const bad = /[xd]/.test(shown.states[row]);
      context.fillStyle = bad ? palette.states.x : palette.ink;
      if (y >= 10 || row % 4 === 0) context.fillText(shown.nodes[row].replace(/^[^-]+-/, ""), 0, top + y / 2);
      for (let column = 0; column < columns; column++) {
        const letter = shown.states[row][column];
        const percent = shown.utilisation[row]?.[column] ?? 0;
        context.fillStyle = letter === "u" ? palette.heat[percent === 0 ? 0 : percent < 20 ? 1 : percent < 50 ? 2 : percent < 80 ? 3 : 4] : palette.states[letter];
        const left = columnLeft(column);
        context.fillRect(left, top, Math.max(1, x - 1), y - 1);
        if (letter === "x" && x >= 5) {
          context.strokeStyle = palette.ground;
          context.beginPath();
          context.moveTo(left + 1, top + 1);
          context.lineTo(left + x - 2, top + y - 2);
          context.stroke();
        }
      }
    }
    if (at.row >= 0) {
      context.strokeStyle = palette.ink;
      context.lineWidth = 2;
      context.strokeRect(columnLeft(at.column) - 1.5, rowTop(at.row) - 1.5, x + 2, y + 2);
    }
  }
  const rowTop = (/** @type {number} */ row) => size.top + row * size.y + Math.floor(row / 4) * 3;
  const columnLeft = (/** @type {number} */ column) => size.left + column * size.x + (shown.subPlanes[column] - shown.subPlanes[0]) * size.gap;

  /** @param {PointerEvent} event */
  function under(event) {
    const box = canvas.getBoundingClientRect();
    const row = shown.nodes.findIndex((/** @type {any} */ _, /** @type {number} */ each) => event.clientY - box.top < rowTop(each) + size.y);
    const column = shown.ports.findIndex((/** @type {any} */ _, /** @type {number} */ each) => event.clientX - box.left < columnLeft(each) + size.x);
    return row < 0 || column < 0 || event.clientX - box.left < size.left ? null : { row, column };
  }
  function describeCell() {
    if (!shown || at.row < 0) return setText(label, HOW);
    const { row, column } = at;
    const letter = /** @type {"u"} */ (shown.states[row][column]);
    const percent = shown.utilisation[row]?.[column];
    setText(label, `${shown.nodes[row]}.${shown.ports[column]}${shown.switches[column] ? ` → ${shown.switches[column]}` : ""}: ${WORDS[letter]}${percent === undefined ? "" : `, ${percent} % used`}`);
  }
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const cell = shown && under(event);
    if (!cell || (cell.row === at.row && cell.column === at.column)) return;
    at = cell;
    describeCell();
    draw();
  });
  canvas.addEventListener("click", () => at.row >= 0 && chosen(at));
  canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const [down, right] = /** @type {Record<string, number[]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] })[event.key] ?? [];
    if (event.key === "Enter" && at.row >= 0) return chosen(at);
    if (down === undefined || !shown) return;
    event.preventDefault();
    at = { row: Math.max(0, Math.min(shown.nodes.length - 1, at.row + down)), column: Math.max(0, Math.min(shown.ports.length - 1, at.column + right)) };
    describeCell();
    draw();
  });
  element.close = onRedraw(element, draw);
  return element;
}

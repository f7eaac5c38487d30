// @ts-check
// Lines over a common axis on a canvas, with the names of the lines in words; each has a colour and a stroke of its own.
import { h, fill } from "./dom.js";
import { clearCanvas, onRedraw } from "./canvas.js";
import { number } from "./format.js";

const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
const BOX = { left: 46, right: 8, top: 8, bottom: 30 };

/**
 * @typedef {{name: string, points: number[][], group?: number}} Line points are (x, y) pairs in order of x; lines of one group have one stroke
 * @param {string} title @param {string} x @param {string} y @param {Line[]} lines
 */
export function plot(title, x, y, lines) {
  const known = lines.filter((line) => line.points.length);
  const canvas = h("canvas", { class: "chart", role: "img", aria: { label: `${title}: ${known.map(inWords).join("; ") || "no data"}` } });
  const names = h("ul", { class: "legend" }, known.map((line, at) => h("li", {}, h("i", { class: `stroke stroke-${(line.group ?? 0) % DASHES.length}`, data: { hue: at % 8 } }), line.name)));
  const element = h("figure", { class: "card chart-box stack" }, h("figcaption", { class: "heading" }, h("h3", {}, title), h("span", { class: "muted" }, y)), canvas, names);
  if (!known.length) fill(names, h("li", {}, "no data"));

  function draw() {
    const { context, width, height, palette } = clearCanvas(canvas);
    const all = known.flatMap((line) => line.points);
    const first = Math.min(...all.map((point) => point[0]));
    const last = Math.max(...all.map((point) => point[0]));
    const most = Math.max(...all.map((point) => point[1]), 0) || 1;
    const across = (/** @type {number} */ value) => BOX.left + ((value - first) / (last - first || 1)) * (width - BOX.left - BOX.right);
    const up = (/** @type {number} */ value) => BOX.top + (1 - value / most) * (height - BOX.top - BOX.bottom);
    context.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) {
      context.beginPath();
      context.moveTo(BOX.left, up(most * part));
      context.lineTo(width - BOX.right, up(most * part));
      context.stroke();
      context.fillText(short(most * part), 0, up(most * part));
    }
    if (!known.length) return;
    context.textBaseline = "alphabetic";
    context.fillText(short(first), BOX.left, height - 16);
    context.textAlign = "right";
    context.fillText(short(last), width - BOX.right, height - 16);
    context.textAlign = "center";
    context.fillText(x, (BOX.left + width) / 2, height - 3);
    context.textAlign = "left";
    context.lineWidth = 2;
    known.forEach((line, at) => {
      context.strokeStyle = palette.hues[at % 8];
      context.setLineDash(DASHES[(line.group ?? 0) % DASHES.length]);
      context.beginPath();
      line.points.forEach(([right, high], index) => (index ? context.lineTo(across(right), up(high)) : context.moveTo(across(right), up(high))));
      context.stroke();
    });
    context.setLineDash([]);
  }
  element.close = onRedraw(canvas, draw);
  return element;
}

/** @param {Line} line */
function inWords({ name, points }) {
  const highest = points.reduce((best, point) => (point[1] > best[1] ? point : best), points[0]);
  return `${name} from ${short(points[0][1])} to ${short(points[points.length - 1][1])}, at most ${short(highest[1])} at ${short(highest[0])}`;
}

/** @param {number} value */
const short = (value) => number(value, Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 1 ? 1 : 3);

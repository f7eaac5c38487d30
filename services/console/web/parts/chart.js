// @ts-check
// A line chart over time: the last minutes of one figure, with its newest value as text. Unknown values (null) leave a
// gap in the line.
import { h, setText } from "./dom.js";
import { clearCanvas, onRedraw } from "./canvas.js";
import { number } from "./format.js";

/** @param {string} title @param {string} unit @param {number} [digits] */
export function lineChart(title, unit, digits = 0) {
  const canvas = h("canvas", { class: "chart", role: "img" });
  const value = h("b", {});
  const element = h("figure", { class: "card chart-box stack" }, h("figcaption", { class: "heading" }, h("h3", {}, title), value), canvas);
  /** @type {(number | null)[]} */
  let points = [];
  const known = () => points.filter((point) => point !== null);
  element.frame = (/** @type {(number | null)[]} */ now) => {
    points = now;
    const newest = points.at(-1) ?? undefined;
    setText(value, newest === undefined ? "no data yet" : `${number(newest, digits)} ${unit}`);
    canvas.setAttribute("aria-label", newest === undefined ? `${title}: no data yet` : `${title}: ${number(newest, digits)} ${unit}, at most ${number(Math.max(...known()), digits)}`);
    draw();
  };
  function draw() {
    const { context, width, height, palette } = clearCanvas(canvas);
    const most = Math.max(...known(), 0) || 1;
    const fine = Math.max(digits, most < 2 ? 1 : 0); // otherwise 0.5 would be labelled 1
    for (const part of [0, 0.5, 1]) {
      const y = 12 + (1 - part) * (height - 20);
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(width, y);
      context.stroke();
      context.fillText(number(most * part, fine), 2, y - 2);
    }
    if (points.length < 2) return;
    context.strokeStyle = palette.heat[3];
    context.lineWidth = 2;
    context.beginPath();
    points.forEach((point, at) => {
      if (point === null) return;
      const [x, y] = [(at / (points.length - 1)) * width, 12 + (1 - point / most) * (height - 20)];
      if (points[at - 1] === null) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.stroke();
  }
  element.close = onRedraw(canvas, draw);
  return element;
}

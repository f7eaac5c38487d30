// @ts-check
// Common code of canvas drawings: sharp pixels, the colours of the present scheme, and redrawing.
import { colours } from "./colours.js";

/**
 * A cleared canvas in page units, by default of its present size.
 * @param {HTMLCanvasElement} canvas
 */
export function clearCanvas(canvas, width = canvas.clientWidth || 300, height = canvas.clientHeight || 140) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  const palette = colours();
  context.font = "10px system-ui, sans-serif";
  context.strokeStyle = palette.line;
  context.fillStyle = palette.ink;
  return { context, width, height, palette };
}

/**
 * Draw again whenever its size or the colour scheme changes. Returns a function that ends this.
 * @param {HTMLElement} element @param {() => void} draw
 */
export function onRedraw(element, draw) {
  const watching = new ResizeObserver(() => draw());
  watching.observe(element);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw);
  return () => { watching.disconnect(); scheme.removeEventListener("change", draw); };
}

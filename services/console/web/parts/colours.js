// @ts-check
// The colours of the style sheet, for canvases; read again when light turns to dark.

/** @type {{scheme: string, states: Record<string, string>, ink: string, line: string, ground: string, heat: string[], hues: string[]} | null} */
let known = null;
const scheme = matchMedia("(prefers-color-scheme: dark)");
scheme.addEventListener("change", () => { known = null; });

export function colours() {
  const name = scheme.matches ? "dark" : "light";
  if (known?.scheme === name) return known;
  const probe = document.createElement("i");
  document.body.append(probe);
  const read = (/** @type {string} */ variable) => {
    probe.style.color = `var(${variable})`;
    return getComputedStyle(probe).color;
  };
  const states = Object.fromEntries([..."fhscodx"].map((letter) => [letter, read(`--s-${letter}`)]));
  known = { scheme: name, states, ink: read("--ink"), line: read("--line"), ground: read("--ground"), heat: [0, 1, 2, 3, 4].map((step) => read(`--heat-${step}`)), hues: [0, 1, 2, 3, 4, 5, 6, 7].map((hue) => read(`--hue-${hue}`)) };
  probe.remove();
  return known;
}

// @ts-check
// The figures of any report as a table, and its lists of rows as further tables.
import { table } from "./table.js";
import { number } from "./format.js";

const FIGURES_MAX = 200;
const LISTS_MAX = 4;
const ROWS_MAX = 100;

/** Tables of a document. @param {string} name @param {any} document @returns {any[]} */
export function findings(name, document) {
  /** @type {{field: string, value: string}[]} */
  const figures = [];
  /** @type {{field: string, rows: any[]}[]} */
  const lists = [];
  walk(document, "", figures, lists);
  if (!figures.length && !lists.length) throw new Error("it has no figures");
  const facts = table(`Figures of ${name}`, [{ title: "Field", cell: (each) => each.field, sort: (each) => each.field }, { title: "Value", cell: (each) => each.value, number: true }], (each) => each.field);
  facts.frame(figures.slice(0, FIGURES_MAX));
  return [...(figures.length ? [facts] : []), ...lists.slice(0, LISTS_MAX).map(({ field, rows }) => {
    const keys = Object.keys(rows[0]).filter((key) => typeof rows[0][key] !== "object").slice(0, 8);
    const shown = table(field, keys.map((key) => ({ title: key, cell: (each) => text(each[key]), number: typeof rows[0][key] === "number", sort: (each) => each[key] })), (each) => String(each.at), {});
    shown.frame(rows.slice(0, ROWS_MAX).map((each, at) => ({ ...each, at })));
    return shown;
  })];
}

/** @param {any} value @param {string} path @param {{field: string, value: string}[]} figures @param {{field: string, rows: any[]}[]} lists */
function walk(value, path, figures, lists) {
  if (Array.isArray(value)) {
    if (value.length && typeof value[0] === "object" && value[0] !== null) lists.push({ field: path || "items", rows: value });
    return;
  }
  if (typeof value === "object" && value !== null) for (const [key, each] of Object.entries(value)) walk(each, path ? `${path}.${key}` : key, figures, lists);
  else if (value !== null && value !== undefined) figures.push({ field: path, value: text(value) });
}

/** @param {any} value */
export const text = (value) => (typeof value === "number" ? number(value, Number.isInteger(value) ? 0 : 3) : value === undefined || value === null ? "" : String(value));

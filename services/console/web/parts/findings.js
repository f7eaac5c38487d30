// @ts-check
// The figures of any report as a table, and its lists of rows as further tables.
import { table } from "./table.js";
import { h } from "./dom.js";
import { number } from "./format.js";

const FIGURES_MAX = 200;
const LISTS_MAX = 4;
const ROWS_MAX = 100;
const COLUMNS_MAX = 40;

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
  return [...(figures.length ? [facts] : []), ...lists.slice(0, LISTS_MAX).map(({ field, rows }) => rowsTable(field, rows.slice(0, ROWS_MAX)))];
}

/** A table of rows: a column for each figure that differs between them; what all have in common is said once. @param {string} field @param {any[]} rows */
function rowsTable(field, rows) {
  const flat = rows.map((row) => flatten(row));
  const keys = [...new Set(flat.flatMap((row) => [...row.keys()]))];
  const differing = keys.filter((key) => flat.some((row) => row.get(key) !== flat[0].get(key)));
  const columns = (differing.length ? differing : keys).slice(0, COLUMNS_MAX);
  const common = keys.filter((key) => !columns.includes(key) && !differing.includes(key) && text(flat[0].get(key)));
  const shown = table(field, columns.map((key) => ({
    title: key, cell: (each) => text(each.row.get(key)), number: flat.some((row) => typeof row.get(key) === "number"), sort: (each) => each.row.get(key) ?? "",
  })), (each) => String(each.at), {});
  shown.frame(flat.map((row, at) => ({ row, at })));
  const said = common.map((key) => `${key} ${text(flat[0].get(key))}`).join(", ");
  return h("div", { class: "stack" }, shown, said ? h("p", { class: "muted" }, `The same in all rows: ${said}.`) : null);
}

/** The figures of a row by their dotted path. @param {any} row @returns {Map<string, any>} */
function flatten(row) {
  /** @type {Map<string, any>} */
  const found = new Map();
  const visit = (/** @type {any} */ value, /** @type {string} */ path) => {
    if (Array.isArray(value)) return;
    if (typeof value === "object" && value !== null) for (const [key, each] of Object.entries(value)) visit(each, path ? `${path}.${key}` : key);
    else found.set(path, value);
  };
  visit(row, "");
  return found;
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

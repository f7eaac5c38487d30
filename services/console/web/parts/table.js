// @ts-check
// A table that follows its rows: sortable columns, rows that stay the same elements.
import { h, fill, setText, set, sync } from "./dom.js";
import { today } from "./format.js";

/**
 * @typedef {{title: string, cell: (row: any) => any, number?: boolean, sort?: (row: any) => string | number}} Column
 * @param {string} caption @param {Column[]} columns @param {(row: any) => string} key
 * @param {{empty?: string, quiet?: boolean}} [options] `empty`: the text without rows; `quiet`: the caption is for screen readers only
 */
export function table(caption, columns, key, options = {}) {
  const body = h("tbody");
  const empty = h("p", { class: "muted" }, options.empty ?? "None.");
  let by = -1;
  let backwards = false;
  let known = false; // before the first rows arrive, the table must not say that there are none
  /** @type {any[]} */
  let rows = [];
  const heads = columns.map((column, at) => {
    const head = h("th", { scope: "col", class: column.number ? "number" : "" });
    if (column.sort) head.append(h("button", { onclick: () => { backwards = by === at && !backwards; by = at; draw(); } }, column.title));
    else head.append(column.title);
    return head;
  });
  const title = h("caption", {}, options.quiet ? h("span", { class: "hidden" }, caption) : caption);
  const scroll = h("div", { class: "scroll", tabIndex: 0, role: "region", aria: { label: caption } }, h("table", {}, title, h("thead", {}, h("tr", {}, heads)), body));
  const element = h("div", { class: "table" }, scroll, empty);

  function draw() {
    heads.forEach((head, at) => set(head, "aria-sort", at === by ? (backwards ? "descending" : "ascending") : null));
    const sorter = columns[by]?.sort;
    const shown = sorter ? [...rows].sort((a, b) => compare(sorter(a), sorter(b)) * (backwards ? -1 : 1)) : rows;
    scroll.hidden = options.quiet === true && !rows.length;
    empty.hidden = !known || rows.length > 0;
    sync(body, shown, key, () => {
      const cells = columns.map((column) => h("td", { class: column.number ? "number" : "" }));
      const row = h("tr", {}, cells);
      let before = "";
      row.update = (/** @type {any} */ item) => {
        const now = today() + JSON.stringify(item); // yesterday's times have a date
        if (now === before) return;
        before = now;
        columns.forEach((column, at) => {
          const made = column.cell(item);
          if (made instanceof Node || Array.isArray(made)) fill(cells[at], made);
          else setText(cells[at], String(made ?? ""));
        });
      };
      return row;
    });
  }
  element.frame = (/** @type {any[]} */ now) => { rows = now; known = true; draw(); };
  draw();
  return element;
}

/** @param {string | number} one @param {string | number} other */
const compare = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true }));

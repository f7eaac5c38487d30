// @ts-check
// A group of cells that is one stop for Tab: arrow keys, Home and End move from cell to cell.

/**
 * @param {HTMLElement} group
 * @param {string} selector of its cells
 * @param {number} row how many cells an arrow up or down moves
 * @returns {() => void} to be called when its cells have changed
 */
export function oneTabStop(group, selector, row) {
  const cells = () => /** @type {HTMLElement[]} */ ([...group.querySelectorAll(selector)]);
  group.addEventListener("keydown", (event) => {
    const step = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row })[event.key];
    const all = cells();
    const at = all.indexOf(/** @type {any} */ (document.activeElement));
    if (at < 0) return;
    const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step ? at + step : -1;
    if (to < 0 || to >= all.length) return;
    event.preventDefault();
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  });
  return () => {
    const all = cells();
    const [first = all[0]] = all.filter((cell) => cell.tabIndex === 0);
    if (first) first.tabIndex = 0;
  };
}

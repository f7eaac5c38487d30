// @ts-check
// Addresses: a path says which page, the query what of it. All state that is worth a link is here.

/** @typedef {{title: (params: string[]) => string, mount: (root: HTMLElement, page: any) => any}} View */

/** @type {[RegExp, string, () => Promise<View>][]} */
const ROUTES = [
  [/^\/$/, "/", () => import("../views/overview.js")],
  [/^\/nodes\/([^/]+)$/, "/", () => import("../views/node.js")],
  [/^\/instances$/, "/instances", () => import("../views/instances.js")],
  [/^\/instances\/([^/]+)\/([^/]+)$/, "/instances", () => import("../views/instance.js")],
  [/^\/placement$/, "/placement", () => import("../views/placement.js")],
  [/^\/fabric$/, "/fabric", () => import("../views/fabric.js")],
  [/^\/faults$/, "/faults", () => import("../views/faults.js")],
  [/^\/faults\/runs\/([^/]+)$/, "/faults", () => import("../views/run.js")],
  [/^\/serving$/, "/serving", () => import("../views/serving.js")],
  [/^\/tenants$/, "/tenants", () => import("../views/tenants.js")],
  [/^\/experiments$/, "/experiments", () => import("../views/experiments.js")],
];

/** @param {string} path @returns {{load: () => Promise<View>, params: string[], section: string}} */
export function match(path) {
  for (const [pattern, section, load] of ROUTES) {
    const found = pattern.exec(path);
    if (found) return { load, section, params: found.slice(1).map(decodeURIComponent) };
  }
  return { load: () => import("../views/missing.js"), params: [path], section: "" };
}

/** @type {(moved?: boolean) => void} */
let opening = () => {};

/** @param {(moved?: boolean) => void} open */
export function onNavigate(open) {
  opening = open;
  addEventListener("popstate", () => open());
  document.addEventListener("click", (event) => {
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(anchor instanceof HTMLAnchorElement) || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (anchor.origin !== location.origin || anchor.target || anchor.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    navigate(anchor.pathname + anchor.search);
  });
}

/** Go to an address of this console. @param {string} address */
export function navigate(address) {
  history.pushState(null, "", address);
  opening();
}

/** The query changed in place: no new entry in the history, the page stays. @param {Record<string, string | null>} changes */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

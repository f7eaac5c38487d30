// @ts-check
// The routes: which path is which page. Navigation is in core/router.js, which knows no pages.

/** @typedef {{title: (params: string[]) => string, mount: (root: HTMLElement, page: any) => any}} View */

/** @type {[RegExp, string, () => Promise<View>][]} */
const ROUTES = [
  [/^\/$/, "/", () => import("./views/overview.js")],
  [/^\/nodes\/([^/]+)$/, "/", () => import("./views/node.js")],
  [/^\/instances$/, "/instances", () => import("./views/instances.js")],
  [/^\/instances\/([^/]+)\/([^/]+)$/, "/instances", () => import("./views/instance.js")],
  [/^\/placement$/, "/placement", () => import("./views/placement.js")],
  [/^\/fabric$/, "/fabric", () => import("./views/fabric.js")],
  [/^\/faults$/, "/faults", () => import("./views/faults.js")],
  [/^\/faults\/runs\/([^/]+)$/, "/faults", () => import("./views/run.js")],
  [/^\/serving$/, "/serving", () => import("./views/serving.js")],
  [/^\/tenants$/, "/tenants", () => import("./views/tenants.js")],
  [/^\/experiments$/, "/experiments", () => import("./views/experiments.js")],
  [/^\/experiments\/([^/]+)\/([^/]+)$/, "/experiments", () => import("./views/report.js")],
];

/** @param {string} path @returns {{load: () => Promise<View>, params: string[], section: string}} */
export function match(path) {
  for (const [pattern, section, load] of ROUTES) {
    const params = decodeParts(pattern.exec(path));
    if (params) return { load, section, params };
  }
  return { load: () => import("./views/missing.js"), params: [path], section: "" };
}

/** The decoded parts of a path that a pattern matched; null without a match, or if they cannot be decoded. @param {RegExpExecArray | null} found */
function decodeParts(found) {
  try {
    return found && found.slice(1).map(decodeURIComponent);
  } catch {
    return null;
  }
}

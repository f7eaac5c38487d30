// @ts-check
// Moving between addresses: a path says which page (routes.js), the query what of it. All state that is worth a link is here.

/** @type {(moved?: boolean) => void} */
let opening = () => {};
/** The path and query of the page that is open. */
let here = "";
const address = () => location.pathname + location.search;

/** @param {(moved?: boolean) => void} open */
export function onNavigate(open) {
  opening = open;
  here = address();
  addEventListener("popstate", () => {
    // Another part of the same page, as by the link that skips to its content: the page stays as it is.
    if (address() === here) return location.hash ? reveal(location.hash) : undefined;
    here = address();
    open();
  });
  document.addEventListener("click", (event) => {
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(anchor instanceof HTMLAnchorElement) || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (anchor.origin !== location.origin || anchor.target || anchor.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    if (anchor.hash && anchor.pathname === location.pathname && !anchor.search) reveal(anchor.hash);
    else navigate(anchor.pathname + anchor.search + anchor.hash);
  });
}

/** Go to an address of this console. @param {string} to */
export function navigate(to) {
  history.pushState(null, "", to);
  here = address();
  opening();
}

/** Bring a part of the page into view, and the keyboard to it. @param {string} hash `#` and the id of the part */
export function reveal(hash) {
  const part = document.getElementById(hash.slice(1));
  if (!part) return;
  part.focus({ preventScroll: true });
  // What comes in above it later must not push it away, until the reader moves on.
  const watching = new ResizeObserver(() => (document.activeElement === part ? part.scrollIntoView() : watching.disconnect()));
  watching.observe(document.body);
  for (const moving of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(moving, () => watching.disconnect(), { once: true, passive: true });
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
  here = address();
}

// @ts-check
// Navigation: the path selects the page (routes.js), the query its state. All state worth a link is in the address.

/** @type {(moved?: boolean) => void} */
let openPage = () => {};
/** The path and query of the page that is open. */
let currentAddress = "";
const address = () => location.pathname + location.search;

/** @param {(moved?: boolean) => void} open */
export function onNavigate(open) {
  openPage = open;
  currentAddress = address();
  addEventListener("popstate", () => {
    // A fragment of the same page, such as the skip link: the page stays as it is.
    if (address() === currentAddress) return location.hash ? scrollToPart(location.hash) : undefined;
    currentAddress = address();
    open();
  });
  document.addEventListener("click", (event) => {
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(anchor instanceof HTMLAnchorElement) || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (anchor.origin !== location.origin || anchor.target || anchor.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    if (anchor.hash && anchor.pathname === location.pathname && !anchor.search) scrollToPart(anchor.hash);
    else navigate(anchor.pathname + anchor.search + anchor.hash);
  });
}

/** Go to an address of this console. @param {string} to */
export function navigate(to) {
  history.pushState(null, "", to);
  currentAddress = address();
  openPage();
}

/** Scroll to a part of the page and focus it. @param {string} hash `#` and the id of the part */
export function scrollToPart(hash) {
  const part = document.getElementById(hash.slice(1));
  if (!part) return;
  part.focus({ preventScroll: true });
  // Content that loads above it later must not push it out of view, until the user moves on.
  const watching = new ResizeObserver(() => (document.activeElement === part ? part.scrollIntoView() : watching.disconnect()));
  watching.observe(document.body);
  for (const moving of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(moving, () => watching.disconnect(), { once: true, passive: true });
}

/** Change the query in place, without a new history entry. @param {Record<string, string | null>} changes */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  currentAddress = address();
}

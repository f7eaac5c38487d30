// @ts-check
// The frame around every page: who is logged in, where one is, what the machine is doing right now.
import { RequestError } from "./core/api.js";
import { live } from "./core/live.js";
import { login, logout, redeem, session, storedToken } from "./core/session.js";
import { navigate, onNavigate, scrollToPart } from "./core/router.js";
import { match } from "./routes.js";
import { h, fill, setText, set, link } from "./parts/dom.js";
import { headline } from "./parts/headline.js";
import { loginForm } from "./views/login.js";

const PAGES = [
  ["/", "Overview"], ["/instances", "Instances"], ["/placement", "Placement"], ["/fabric", "Fabric"],
  ["/faults", "Faults"], ["/serving", "Serving"], ["/tenants", "Tenants"], ["/experiments", "Experiments"],
];

/** The pause between attempts of `retry` while a service does not answer. */
const RETRY_MS = 2000;

const app = /** @type {HTMLElement} */ (document.getElementById("app"));

/** @type {{frame?: (picture: any) => void, close?: () => void} | null} */
let view = null;
let pageAbort = new AbortController();
const main = h("main", { id: "main", tabIndex: -1 });
const connection = h("p", { class: "connection", role: "status" });
const statusLine = headline();

async function startSession() {
  const code = new URLSearchParams(location.hash.slice(1)).get("login");
  if (code) history.replaceState(null, "", location.pathname + location.search);
  let why = "";
  for (const given of [async () => code && (await redeem(code)), storedToken, () => live.sharedToken(), () => ""]) {
    try {
      const token = await given();
      if (token || token === "") return await enter(token);
    } catch (wrong) {
      if (given === storedToken || code) why ||= /** @type {Error} */ (wrong).message;
    }
  }
  fill(app, loginForm(enter, why));
}

/** @param {string} token */
async function enter(token) {
  await login(token);
  live.start(token);
  fill(app, pageFrame(), main);
  open(false);
}

function pageFrame() {
  const who = /** @type {NonNullable<ReturnType<typeof session>>} */ (session());
  const out = h("button", { class: "quiet", onclick: () => { endSession(""); location.assign("/"); } }, "Log out");
  return h("header", { class: "top" },
    h("div", { class: "brand" }, link("/", h("img", { src: "/icon.svg", alt: "", width: 20, height: 20 }), "CloudMatrix")),
    h("nav", { aria: { label: "Pages" } }, h("ul", {}, PAGES.map(([href, name]) => h("li", {}, link(href, name))))),
    h("div", { class: "who" }, h("span", { class: "name" }, who.everywhere ? `${who.name}, all projects` : `${who.name}, ${who.project}`),
      h("span", { class: "role", title: `project ${who.project}` }, who.role), who.token ? out : null),
    statusLine, connection);
}

/** Log out: the page and its requests end with the session. @param {string} why */
function endSession(why) {
  logout();
  live.stop();
  pageAbort.abort();
  view?.close?.();
  view = null;
  fill(app, loginForm(enter, why));
}

/** Open the view of the present address. @param {boolean} [moved] whether the user followed a link */
async function open(moved = true) {
  if (!session()) return;
  const { load, params, section } = match(location.pathname);
  pageAbort.abort();
  pageAbort = new AbortController();
  const { signal } = pageAbort;
  view?.close?.();
  view = null;
  for (const each of document.querySelectorAll("nav[aria-label=Pages] a")) {
    set(each, "aria-current", each.getAttribute("href") === section ? "page" : null);
  }
  /** @type {import("./routes.js").View | null} */
  let module = null;
  while (!(module ??= await load().catch(() => null)) && !signal.aborted) {
    // The page shown before belongs to another address and is no longer updated.
    fill(main, h("p", { class: "problem", role: "alert" }, "The console's gateway does not answer; the page will load when it does."));
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
  if (signal.aborted || !module) return;
  fill(main);
  document.title = `${module.title(params)} · CloudMatrix`;
  view = module.mount(main, {
    params,
    signal,
    query: new URLSearchParams(location.search),
    poll: (/** @type {number} */ ms, /** @type {() => Promise<void>} */ look) => poll(ms, look, signal),
    retry: (/** @type {() => Promise<void>} */ look) => retry(look, signal),
  });
  if (live.picture) view?.frame?.(live.picture);
  if (location.hash) scrollToPart(location.hash);
  else if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

/** Call `look` now, and again `ms` after each call has finished, while the page is visible. @param {number} ms @param {() => Promise<void>} look @param {AbortSignal} signal */
async function poll(ms, look, signal) {
  while (!signal.aborted) {
    if (!document.hidden) await look().catch((wrong) => { if (!signal.aborted) console.debug(wrong); });
    await new Promise((done) => setTimeout(done, ms));
  }
}

/** Call `look` until it succeeds or fails with a client error, retrying while its service does not answer. @param {() => Promise<void>} look @param {AbortSignal} signal */
async function retry(look, signal) {
  while (!signal.aborted) {
    try {
      return await look();
    } catch (wrong) {
      if (signal.aborted || (wrong instanceof RequestError && wrong.status < 500)) return;
      if (!(wrong instanceof RequestError)) throw wrong;
    }
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

live.addEventListener("frame", () => {
  if (live.state === "ended") return endSession("this token is no longer accepted");
  setText(connection, { live: "", connecting: "Connecting…", away: "Reconnecting… the data shown may be outdated", ended: "" }[live.state] ?? "");
  document.body.classList.toggle("away", live.state === "away");
  document.body.classList.toggle("past", live.shown !== null);
  if (!live.picture) return;
  statusLine.frame(live.picture, live.emulated, live.time?.scale ?? 1);
  view?.frame?.(live.picture);
});
setInterval(() => live.picture && statusLine.tick(live.emulated, live.time?.scale ?? 1), 1000);
onNavigate(open);
void startSession();

export { navigate };

// @ts-check
// The whole machine at a glance: cabinets, their holders, alerts, and the latest events.
import { live } from "../core/live.js";
import { setQuery } from "../core/router.js";
import { get } from "../core/api.js";
import { h, fill, setText, setProperty, sync, link, plural } from "../parts/dom.js";
import { legend } from "../parts/cabinet.js";
import { supernodeTiles } from "../parts/tiles.js";
import { switchCabinets } from "../parts/switches.js";
import { timeSlider } from "../parts/slider.js";
import { clock, compareNames, short } from "../parts/format.js";

export const title = () => "Overview";

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  let chosen = page.query.get("supernode") ?? "";
  const tiles = supernodeTiles((name) => { chosen = name; setQuery({ supernode: name }); frame(live.picture); void look().catch(() => {}); });
  const rack = /** @type {any} */ (document.createElement("cm-rack"));
  const heading = h("h2", {});
  const summary = h("p", { class: "muted" });
  const switches = switchCabinets();
  const present = h("p", { class: "muted", hidden: true }, "The L2 chips are shown as they are now.");
  const alerts = h("ul", { class: "feed alerts" });
  const quiet = h("p", { class: "muted" }, "No alerts.");
  const events = h("ol", { class: "feed events", tabIndex: 0, aria: { label: "Events, the newest first" } });
  const nothing = h("p", { class: "muted" }, "No events yet.");
  const slider = timeSlider();

  fill(root, h("h1", { class: "hidden" }, "Overview"), h("div", { class: "overview" },
    h("section", { class: "machine", aria: { labelledby: "machine" } }, tiles, h("div", { class: "heading" }, heading, summary), rack, switches, present, legend(), slider),
    h("aside", {},
      h("section", { id: "alerts", tabIndex: -1, aria: { labelledby: "alerts-title" } }, h("h2", { id: "alerts-title" }, "Alerts"), quiet, alerts),
      h("section", { aria: { labelledby: "events-title" } }, h("h2", { id: "events-title" }, "Last events"), nothing, events))));
  heading.id = "machine";

  let planes = "";
  let switchesOf = "";
  async function look() {
    const asked = chosen;
    if (asked !== switchesOf) fill(switches); // do not show the other supernode's chips in the meantime
    switchesOf = asked;
    const matrix = asked && await get(`link/v1/planes/ub/matrix?supernode=${encodeURIComponent(asked)}`, page.signal);
    if (matrix && asked === chosen) switches.frame(matrix);
  }
  page.poll(10_000, look);

  /** @param {any} picture */
  function frame(picture) {
    const names = Object.keys(picture.supernodes).sort(compareNames);
    if (!picture.supernodes[chosen]) chosen = names[0] ?? "";
    tiles.frame(picture, chosen);
    slider.frame();
    setProperty(present, "hidden", !live.shown);
    const supernode = picture.supernodes[chosen];
    setText(heading, chosen ? `Supernode ${chosen}` : "No supernode yet");
    if (supernode) {
      const letters = Object.values(supernode.states).join("");
      const free = letters.split("f").length - 1;
      const block = picture.capacity.supernodes?.[chosen];
      setText(summary, `${free} of ${letters.length} NPUs free${block === undefined ? "" : `, largest block ${plural(block, "node")}`}`);
      rack.frame(supernode, picture.capacity.closed ?? {});
    }
    if (JSON.stringify(picture.planes) !== planes) {
      planes = JSON.stringify(picture.planes);
      void look().catch(() => {});
    }
    const found = Object.entries(picture.alerts);
    setProperty(quiet, "hidden", found.length > 0);
    sync(alerts, found, ([key]) => key, alertItem);
    const happened = Object.entries(picture.events).sort(([a, one], [b, other]) => other.at.localeCompare(one.at) || b.localeCompare(a)).slice(0, 30);
    setProperty(nothing, "hidden", happened.length > 0);
    setProperty(events, "hidden", !happened.length);
    sync(events, happened, ([key]) => key, eventItem);
  }
  return { frame, close: () => live.show(null) };
}

/** @param {[string, any]} entry */
function alertItem([, alert]) {
  const where = { node: `/nodes/${alert.name}`, instance: `/instances/${alert.name}`, plane: `/fabric?plane=${alert.name}`, service: "" }[/** @type {string} */ (alert.kind)];
  const message = h("span", {});
  const item = h("li", {}, h("i", { class: "mark", aria: { hidden: true } }, "!"), h("div", {}, where ? link(where, short(alert.name)) : alert.name, " ", message));
  item.update = (/** @type {[string, any]} */ [, current]) => setText(message, current.message);
  return item;
}

/** @param {[string, any]} entry */
function eventItem([, event]) {
  const about = event.source === "compute" ? link(`/instances/${event.project}/${event.about}`, event.about) : event.about.match(/-n\d+$/) ? link(`/nodes/${event.about}`, event.about) : event.about;
  const time = h("time", { datetime: event.at, title: event.at });
  const item = h("li", { data: { kind: event.kind } }, time, h("div", {}, about, " ", h("b", {}, event.reason), " ", h("span", {}, event.message)));
  item.update = () => setText(time, clock(event.at));
  return item;
}

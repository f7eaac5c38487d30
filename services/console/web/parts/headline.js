// @ts-check
// The headline of every page: free, held and faulty NPUs, the largest free block, alerts, and the time.
import { h, setText, set, setProperty, link, plural } from "./dom.js";
import { moment, number } from "./format.js";

export function headline() {
  const figure = (/** @type {string} */ state, /** @type {string} */ word) => {
    const value = h("strong", {}, "–");
    return [h("span", { class: "figure", data: { s: state } }, h("i", { class: "swatch", aria: { hidden: true } }), value, ` ${word}`), value];
  };
  const [free, freeValue] = figure("f", "free");
  const [held, heldValue] = figure("h", "held");
  const [spare, spareValue] = figure("s", "spare");
  const [faulty, faultyValue] = figure("x", "faulty");
  const [limited, limitedValue] = figure("d", "degraded or out");
  const block = h("span", { class: "figure" });
  const alerts = h("span", { class: "figure" }, link("/#alerts"));
  const time = h("time", { class: "figure clock" });
  const element = h("div", { class: "headline", role: "group", aria: { label: "State of the machine" } }, free, held, spare, faulty, limited, block, alerts, time);

  element.frame = (/** @type {any} */ picture, /** @type {number | null} */ emulated, /** @type {number} */ scale) => {
    const { counts, capacity } = picture;
    setText(freeValue, number(counts.free));
    setText(heldValue, number(counts.held));
    setText(spareValue, number(counts.spare));
    setText(faultyValue, number(counts.faulty));
    setText(limitedValue, number(counts.degraded + counts.out));
    setProperty(limited, "title", `${counts.degraded} degraded, ${counts.out} out of service`);
    setProperty(limited, "hidden", !(counts.degraded + counts.out));
    const largest = capacity.largestBlock?.all;
    setText(block, largest === undefined ? "largest block –" : `largest block ${plural(largest, "node")}`);
    setProperty(block, "title", largest === undefined ? "" : `${capacity.largestBlock.cabinet} nodes in one cabinet, ${capacity.largestBlock.supernode} in one supernode, ${largest} in all`);
    const count = Object.keys(picture.alerts).length;
    setText(alerts.firstChild, count ? plural(count, "alert") : "no alerts");
    set(alerts, "data-alerts", count ? "some" : "none");
    element.tick(emulated, scale);
  };
  element.tick = (/** @type {number | null} */ emulated, /** @type {number} */ scale) => {
    if (emulated !== null) setText(time, `${moment(emulated)} · ${scale < 0.001 ? "paused" : `${number(scale, scale < 10 && scale % 1 ? 1 : 0)}×`}`);
  };
  return element;
}

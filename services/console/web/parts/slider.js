// @ts-check
// The last ten minutes, frame by frame: they are kept in this tab, so going back sends no requests.
import { live } from "../core/live.js";
import { h, setText, set, setProperty } from "./dom.js";
import { duration } from "./format.js";

export function timeSlider() {
  const range = h("input", { type: "range", min: "0", max: "0", value: "0", step: "1", id: "moment" });
  const label = h("output", { for: "moment" });
  const now = h("button", { class: "quiet" }, "Now");
  const element = h("div", { class: "slider" }, h("label", { for: "moment" }, "Last ten minutes"), range, label, now);
  let playing = true;

  range.addEventListener("input", () => {
    const frame = live.frames[Number(range.value)];
    playing = Number(range.value) >= live.frames.length - 1;
    live.show(playing || !frame ? null : frame.at);
    shown();
  });
  now.addEventListener("click", () => {
    playing = true;
    live.show(null);
    shown();
  });

  function shown() {
    setProperty(range, "max", String(Math.max(0, live.frames.length - 1)));
    if (playing) setProperty(range, "value", range.max);
    else if (live.shown) setProperty(range, "value", String(Math.max(0, live.frames.indexOf(live.shown))));
    const ago = live.shown ? (Date.now() - live.shown.at) / 1000 : 0;
    const text = live.shown ? `${duration(ago)} ago` : "live";
    setText(label, text);
    set(range, "aria-valuetext", text);
    setProperty(now, "disabled", playing);
  }
  element.frame = shown;
  return element;
}

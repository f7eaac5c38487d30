// @ts-check
// All instances that the user may see, live.
import { setQuery } from "../core/router.js";
import { live } from "../core/live.js";
import { h, fill, link } from "../parts/dom.js";
import { chip } from "../parts/state.js";
import { table } from "../parts/table.js";
import { short } from "../parts/format.js";

export const title = () => "Instances";

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  let wanted = page.query.get("search") ?? "";
  const search = h("input", { type: "search", id: "search", value: wanted, placeholder: "name, project or state" });
  const rows = table("Instances", [
    { title: "Name", cell: (each) => link(`/instances/${each.project}/${each.name}`, each.name), sort: (each) => each.name },
    { title: "Project", cell: (each) => each.project, sort: (each) => each.project },
    { title: "State", cell: (each) => chip(each.state), sort: (each) => each.state },
    { title: "Ready", cell: (each) => `${each.ready} of ${each.nodes}`, number: true, sort: (each) => each.ready },
    { title: "NPUs", cell: (each) => each.npus, number: true, sort: (each) => each.npus },
    { title: "Spares", cell: (each) => each.spares, number: true, sort: (each) => each.spares },
    { title: "What is wrong", cell: (each) => h("span", { class: each.trouble ? "bad" : "" }, each.trouble) },
  ], (each) => `${each.project}/${each.name}`, { empty: "No instances yet. Plan and create one under Placement.", quiet: true });
  search.addEventListener("input", () => { wanted = search.value; setQuery({ search: wanted }); frame(live.picture); });
  fill(root, h("div", { class: "stack" },
    h("div", { class: "heading" }, h("h1", {}, "Instances"), link("/placement", "Plan a new one")),
    h("div", { class: "toolbar" }, h("label", { for: "search" }, "Search"), search), h("section", { class: "card" }, rows)));

  /** @param {any} picture */
  function frame(picture) {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    rows.frame(Object.values(picture.instances).filter((each) => words.every((/** @type {string} */ word) => `${short(`${each.project}/${each.name}`)} ${each.project} ${each.state} ${each.trouble}`.toLowerCase().includes(word))));
  }
  return { frame };
}

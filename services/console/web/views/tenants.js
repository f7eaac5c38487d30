// @ts-check
// Projects: quota, resources held, and model usage of each.
import { call, list } from "../core/api.js";
import { live } from "../core/live.js";
import { h, fill, setText, set, link } from "../parts/dom.js";
import { action, notAdmin, invalidInput } from "../parts/action.js";
import { table } from "../parts/table.js";
import { number, short } from "../parts/format.js";

/** The limits of a quota that are not set here, with the option of `matrixctl quota set` and the unit. @type {Record<string, [string, string]>} */
const OTHER_LIMITS = { cpus: ["--cpus", "CPU sockets"], memoryGib: ["--memory-gib", "GiB of memory"] };

export const title = () => "Tenants";

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  /** @type {any[]} */
  let quotas = [];
  const problem = h("p", { class: "problem", role: "alert" });
  const projects = table("Projects", [
    { title: "Project", cell: (each) => each.project, sort: (each) => each.project },
    { title: "Instances", cell: (each) => each.instances.flatMap((/** @type {any} */ one, /** @type {number} */ at) => [at ? ", " : "", link(`/instances/${each.project}/${one.name}`, one.name)]) },
    { title: "NPUs", cell: (each) => number(each.npus), number: true, sort: (each) => each.npus },
    { title: "Quota", cell: (each) => (each.quota == null ? "none" : number(each.quota)), number: true },
    { title: "Used", cell: (each) => (each.quota == null ? "" : meter(each.used, each.quota)) },
  ], (each) => each.project, { empty: "No project has any resources.", quiet: true });
  const project = h("input", { id: "project", pattern: "[a-z0-9](?:[a-z0-9\\-]*[a-z0-9])?", required: true, value: "default", autocomplete: "off" });
  const npus = h("input", { id: "quota", type: "number", min: "0", step: "1", value: "64", required: true });
  /** The other limits of the project: a quota is set as a whole. */
  const kept = () => {
    const present = quotas.find((each) => each.name === project.value) ?? {};
    return Object.entries(OTHER_LIMITS).flatMap(([name, [option, word]]) => (present[name] == null ? [] : [{ name, option, word, value: present[name] }]));
  };
  const quota = action(() => ({
    label: "Set the quota", off: notAdmin() || (project.checkValidity() ? "" : "Project name: lowercase letters, digits and dashes") || invalidInput(npus),
    does: `${project.value} may have ${[`${npus.value} NPUs, spares included`, ...kept().map(({ value, word }) => `${number(value)} ${word} as before`)].join(", ")}. It keeps what it already has.`,
    command: [`matrixctl quota set ${project.value} --npus ${npus.value}`, ...kept().map(({ option, value }) => `${option} ${value}`)].join(" "),
    run: () => call("PUT", `resource/v1/quotas/${project.value}`, { npus: Number(npus.value), ...Object.fromEntries(kept().map(({ name, value }) => [name, value])) }), done: () => void look(),
  }));
  for (const input of [project, npus]) input.addEventListener("input", () => quota.frame());
  const usage = table("Usage of models", [
    { title: "Project", cell: (each) => each.project, sort: (each) => each.project }, { title: "Deployment", cell: (each) => short(each.deployment), sort: (each) => each.deployment },
    { title: "Key", cell: (each) => each.key }, { title: "Requests", cell: (each) => number(each.requests), number: true, sort: (each) => each.requests },
    { title: "Prompt tokens", cell: (each) => number(each.promptTokens), number: true, sort: (each) => each.promptTokens }, { title: "of them cached", cell: (each) => number(each.cachedTokens), number: true },
    { title: "Completion tokens", cell: (each) => number(each.completionTokens), number: true, sort: (each) => each.completionTokens },
  ], (each) => each.name, { empty: "No model has been used." });
  fill(root, h("div", { class: "stack" }, h("h1", {}, "Tenants"), problem, h("section", { class: "card" }, projects),
    h("section", { class: "card stack", aria: { labelledby: "set" } }, h("h2", { id: "set" }, "Quota"), h("div", { class: "fields" }, h("div", { class: "field" }, h("label", { for: "project" }, "Project"), project), h("div", { class: "field" }, h("label", { for: "quota" }, "NPUs at most"), npus)), quota), h("section", { class: "card" }, usage)));

  async function look() {
    try {
      quotas = await list("resource/v1/quotas", page.signal);
      quota.frame();
      frame(live.picture);
      usage.frame(await list("infer/v1/usage", page.signal));
      setText(problem, "");
    } catch (wrong) {
      if (!page.signal.aborted) setText(problem, /** @type {Error} */ (wrong).message);
    }
  }

  /** @param {any} picture */
  function frame(picture) {
    const found = Map.groupBy(Object.values(picture?.instances ?? {}), (/** @type {any} */ each) => each.project);
    const names = new Set([...found.keys(), ...quotas.map((each) => each.name)]);
    projects.frame([...names].sort().map((name) => {
      const instances = found.get(name) ?? [];
      const limit = quotas.find((each) => each.name === name);
      return { project: name, instances: instances.map((/** @type {any} */ each) => ({ name: each.name })), npus: instances.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.npus, 0), quota: limit?.npus, used: limit?.usedNpus };
    }));
  }
  page.poll(2000, look);
  return { frame };
}

/** @param {number} used @param {number} most */
function meter(used, most) {
  const fillBar = h("i", {});
  const share = most ? Math.min(1, used / most) : 1;
  fillBar.style.width = `${share * 100}%`;
  const text = `${number(used, used % 1 ? 1 : 0)} of ${number(most, most % 1 ? 1 : 0)} NPUs`;
  const bar = h("div", { class: "meter", role: "meter", aria: { label: "NPUs used", valuenow: used, valuemin: 0, valuemax: most, valuetext: text } }, fillBar);
  set(bar, "data-tone", share >= 1 ? "bad" : null);
  return h("div", { class: "metered" }, bar, h("small", {}, text));
}

// @ts-check
// One instance: its members and conditions, its operations step by step, and the actions on it.
import { resourcePath, call, get } from "../core/api.js";
import { live } from "../core/live.js";
import { navigate, setQuery } from "../core/router.js";
import { h, fill, setText, link, sync } from "../parts/dom.js";
import { chip, conditions, showError, showFound } from "../parts/state.js";
import { action, notEditor } from "../parts/action.js";
import { workflowBars } from "../parts/bars.js";
import { table } from "../parts/table.js";
import { clock, duration, secondsBetween, number } from "../parts/format.js";

export const title = (/** @type {string[]} */ [, name]) => `Instance ${name}`;

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  const [project, name] = page.params;
  const key = `${project}/${name}`;
  const more = project === "default" ? "" : ` --project ${project}`;
  /** @type {any} */
  let instance = null;
  let paused = false;
  let chosen = page.query.get("operation") ?? "";
  const state = chip("");
  const problem = h("p", { class: "problem", role: "alert" });
  const facts = h("dl", { class: "facts" });
  const shown = conditions();
  const members = table("Members", [
    { title: "Rank", cell: (each) => each.rank ?? "", number: true, sort: (each) => each.rank ?? -1 },
    { title: "Role", cell: (each) => each.role, sort: (each) => each.role },
    { title: "Node", cell: (each) => link(`/nodes/${each.node}`, each.node), sort: (each) => each.node },
    { title: "State", cell: (each) => chip(each.state), sort: (each) => each.state },
    { title: "Agent", cell: (each) => each.agent, sort: (each) => each.agent },
    { title: "Health", cell: (each) => each.health, sort: (each) => each.health },
    { title: "Ready", cell: (each) => (each.ready ? "yes" : "no") },
    { title: "Stage or fault", cell: (each) => each.fault || each.stage || each.message || "" },
  ], (each) => each.node + each.role, { empty: "It has no nodes." });
  const pause = h("button", { onclick: () => { paused = !paused; setText(pause, paused ? "Resume" : "Pause"); pause.setAttribute("aria-pressed", String(paused)); } }, "Pause");
  const operations = h("div", { class: "stack" });
  const none = h("p", { class: "muted", hidden: true }, "No operations yet.");

  /** @param {string} label @param {string} verb @param {string} does @param {() => string} unless @param {boolean} [danger] */
  const verb = (label, verb, does, unless, danger) => action(() => ({
    label, does, danger, command: `matrixctl instance ${verb} ${name}${more}`, off: notEditor() || unless(),
    run: () => call("POST", resourcePath("compute/v1/instances", key, `:${verb}`)), done: () => void look(),
  }));
  const is = (/** @type {string[]} */ ...states) => states.includes(instance?.state);
  const actions = [
    verb("Start", "start", "Its nodes are switched on again; it serves once they have booted.", () => (is("Stopped") ? "" : is("Suspended") ? "It is suspended: set its field suspend to false" : "It is not stopped")),
    verb("Stop", "stop", "Its nodes are switched off; it keeps them and its bandwidth guarantees.", () => (is("Active") ? "" : "Only an active instance can be stopped"), true),
    verb("Restart", "restart", "Its nodes are switched off and on.", () => (is("Active") ? "" : "Only an active instance can be restarted"), true),
    verb("Retry", "retry", "The failed operation continues from its last step.", () => (is("Failed", "Pending") ? "" : "Nothing has failed")),
    action(() => ({
      label: "Delete", danger: true, off: notEditor() || (is("Deleting") ? "It is being deleted" : ""),
      does: instance?.labels?.["cloudmatrix.io/namespace"] ? "It belongs to a CloudMatrixInstance, which will create it again: delete that with kubectl instead." : "Its nodes and slices are released.",
      command: instance?.labels?.["cloudmatrix.io/namespace"] ? `kubectl delete cmi ${name} -n ${project}` : `matrixctl delete instance ${name}${more}`,
      run: () => call("DELETE", resourcePath("compute/v1/instances", key)), done: () => navigate("/instances"),
    })),
  ];
  const body = h("div", { class: "stack", hidden: true },
    h("div", { class: "columns" }, h("section", { class: "card" }, facts), h("section", { class: "card actions", aria: { label: "Actions" } }, actions)),
    h("section", { class: "card stack", aria: { labelledby: "work" } }, h("div", { class: "heading" }, h("h2", { id: "work" }, "Operations"), pause), none, operations),
    h("section", { class: "card" }, shown), h("section", { class: "card" }, members));
  fill(root, h("div", { class: "stack" }, h("div", { class: "heading" }, h("h1", {}, name), state, h("span", { class: "muted" }, project)), problem, body));

  async function look() {
    try {
      instance = await get(resourcePath("compute/v1/instances", key), page.signal);
      if (!paused) await lookAtOperations();
      showFound(problem, body, state);
    } catch (wrong) {
      if (!page.signal.aborted) showError(wrong, problem, body);
      return;
    }
    state.update(instance.state);
    const reliability = instance.lastRecovery;
    fill(facts, fact("Nodes", `${instance.readyNodes ?? 0} of ${instance.nodes} ready, ${instance.npus} NPUs`), fact("Spares", number(instance.spares)),
      fact("Placement", `${instance.placement.policy} by ${instance.placement.level}${instance.placement.required ? ", required" : ""}`), fact("Priority", `${instance.priority}, ${instance.preemption === "Never" ? "preempts nobody" : "preempts lower ones"}`),
      fact("Network", Object.entries(instance.network).map(([plane, share]) => `${plane} ${share.qosClass} ${share.floorGbpsPerNpu ? `${share.floorGbpsPerNpu} GB/s per NPU` : ""}`).join(", ")),
      reliability ? fact("Last recovery", duration(reliability.totalS ?? 0)) : null,
      fact("Why this placement", link(`/placement?nodes=${instance.nodes}&level=${instance.placement.level}&policy=${instance.placement.policy}`, "plan the same request now")));
    shown.frame(instance.conditions);
    members.frame(instance.members);
    for (const each of actions) each.frame();
  }

  async function lookAtOperations() {
    const filter = encodeURIComponent(`target=${name}`);
    const found = (await get(`compute/v1/operations?filter=${filter}&orderBy=${encodeURIComponent("startedAt desc")}&pageSize=12&project=${project}`, page.signal)).items;
    none.hidden = found.length > 0;
    sync(operations, found, (each) => each.name, operationItem);
  }

  /** @param {any} operation */
  function operationItem(operation) {
    const bars = workflowBars();
    const status = chip(operation.state);
    const took = h("span", { class: "muted" });
    const message = h("p", { class: "muted" });
    const open = chosen ? chosen === operation.name : !operations.children.length;
    const item = h("details", { open, ontoggle: () => { if (item.open) setQuery({ operation: item.syncKey }); } },
      h("summary", { class: "heading" }, h("b", {}, operation.verb.replaceAll("-", " ")), status, took), bars, message);
    item.update = (/** @type {any} */ now) => {
      status.update(now.state);
      const emulated = new Date((live.emulated ?? 0) * 1000).toISOString();
      setText(took, `${clock(now.startedAt)} · ${duration(secondsBetween(now.startedAt, now.finishedAt ?? emulated))}`);
      setText(message, now.message ?? "");
      message.hidden = !now.message;
      bars.frame(now, emulated);
    };
    return item;
  }
  page.poll(1000, look);
  return {};
}

/** @param {string} term @param {any} value */
const fact = (term, value) => [h("dt", {}, term), h("dd", {}, value)];

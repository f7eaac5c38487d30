// @ts-check
// Inject a fault and watch its detection and repair: faults of the emulated hardware, and scenarios with a verdict.
import { call, get, list } from "../core/api.js";
import { navigate, setQuery } from "../core/router.js";
import { live } from "../core/live.js";
import { h, fill, setText, link, sync } from "../parts/dom.js";
import { action, command, notAdmin, notEditor, shellQuote } from "../parts/action.js";
import { chip } from "../parts/state.js";
import { table } from "../parts/table.js";
import { clock, duration } from "../parts/format.js";

export const title = () => "Faults";

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  const kind = h("select", { id: "kind", name: "kind" });
  const means = h("p", { class: "muted" });
  const target = h("input", { id: "target", name: "target", list: "targets", value: page.query.get("target") ?? "", placeholder: "sn0-c02-n1", autocomplete: "off", spellcheck: false });
  const targets = h("datalist", { id: "targets" });
  const parameters = h("input", { id: "parameters", name: "parameters", placeholder: "npu=3 die=1", value: page.query.get("parameters") ?? "", autocomplete: "off", spellcheck: false });
  const told = h("p", { role: "status" });
  const watchers = h("ol", { class: "feed" });
  /** @type {Record<string, string>} */
  let kinds = {};
  const problem = h("p", { class: "problem", role: "alert" });

  /** @type {any[]} the injected faults */
  let there = [];

  const words = () => parameters.value.trim().split(/\s+/).filter(Boolean);
  const usual = () => named(`${kind.value}-${target.value.trim()}`);
  const request = () => requested(kind.value, target.value.trim(), words());
  /** The fault's name, as the command makes it; with the parameters if a fault of that name has other ones. */
  const nameOf = (/** @type {any} */ wanted) => {
    const other = there.find((each) => each.name === usual());
    return !other || JSON.stringify(other.parameters) === JSON.stringify(wanted.parameters) ? usual() : named(`${usual()}-${words().join("-")}`);
  };
  const asCommand = () => {
    const own = nameOf(request());
    return `matrixctl fault inject ${kind.value || "KIND"} ${shellQuote(target.value.trim() || "TARGET")}${words().map((/** @type {string} */ each) => ` -p ${shellQuote(each)}`).join("")}${own === usual() ? "" : ` --name ${own}`}`;
  };
  const shownCommand = command(asCommand());
  const inject = action(() => ({
    label: "Inject", danger: true, off: notAdmin() || (!target.value.trim() ? "Enter a target" : words().every((/** @type {string} */ each) => /^[^=]+=./.test(each)) ? "" : "Parameters: name=value, separated by spaces"), command: asCommand(),
    does: `${target.value.trim()}: ${kinds[kind.value] ?? ""}. The control plane is not told: it has to detect it.`,
    run: () => call("PUT", `agents/v1/faults/${nameOf(request())}`, request()),
    done: (made) => { setText(told, `${made.kind} at ${made.target} has been injected; the reaction appears below.`); void look(); },
  }));
  const injected = table("Injected", [
    { title: "Fault", cell: (each) => each.kind }, { title: "At", cell: (each) => (/-n\d+$/.test(each.target) ? link(`/nodes/${each.target}`, each.target) : each.target) },
    { title: "Parameters", cell: (each) => h("code", {}, Object.entries(each.parameters ?? {}).map(([key, value]) => `${key}=${value}`).join(" ")) },
    { title: "Undo", cell: (each) => action(() => ({ label: "Clear", does: "The fault is removed from the hardware.", command: `matrixctl fault clear ${each.name}`, off: notAdmin(), run: () => call("DELETE", `agents/v1/faults/${each.name}`), done: () => void look() })) },
  ], (each) => each.name, { empty: "No fault is injected." });
  const detected = table("Detected", [
    { title: "Since", cell: (each) => clock(each.since) }, { title: "Node", cell: (each) => link(`/nodes/${each.node}`, each.node) }, { title: "Component", cell: (each) => each.component },
    { title: "Code", cell: (each) => h("code", {}, each.code) }, { title: "Level", cell: (each) => each.level }, { title: "What follows", cell: (each) => each.action },
  ], (each) => each.name, { empty: "The control plane has detected no fault." });
  const scenarios = h("div", { class: "list" });
  const runs = table("Runs", [
    { title: "Scenario", cell: (each) => link(`/faults/runs/${each.name}`, each.title || each.scenario || each.name) }, { title: "State", cell: (each) => chip(each.state) },
    { title: "Verdict", cell: (each) => (each.verdict ? chip(each.verdict) : "") }, { title: "Started", cell: (each) => clock(each.startedAt) }, { title: "Took", cell: (each) => (each.seconds ? duration(each.seconds) : "") },
  ], (each) => each.name, { empty: "No scenario has been run yet." });

  fill(root, h("div", { class: "stack" }, h("h1", {}, "Faults"), problem,
    h("div", { class: "columns" },
      h("section", { class: "card stack", aria: { labelledby: "inject" } }, h("h2", { id: "inject" }, "Break something"),
        h("div", { class: "fields" }, h("div", { class: "field" }, h("label", { for: "kind" }, "Fault"), kind), h("div", { class: "field" }, h("label", { for: "target" }, "At"), target, targets), h("div", { class: "field" }, h("label", { for: "parameters" }, "Parameters"), parameters)), means, shownCommand, inject, told),
      h("section", { class: "card stack", aria: { labelledby: "watch" } }, h("h2", { id: "watch" }, "Reaction of the control plane"), h("p", { class: "muted" }, "Events of the control plane, the newest first."), watchers)),
    h("section", { class: "card" }, injected), h("section", { class: "card" }, detected),
    h("section", { class: "card stack", aria: { labelledby: "scenarios" } }, h("h2", { id: "scenarios" }, "Scenarios"), scenarios), h("section", { class: "card" }, runs)));
  for (const input of [kind, target, parameters]) {
    input.addEventListener("input", () => {
      setText(means, kinds[kind.value] ?? "");
      shownCommand.set(asCommand());
      inject.frame();
      setQuery({ kind: kind.value, target: target.value, parameters: parameters.value });
    });
  }

  /** Each part is updated even if the service of another does not answer. */
  async function look() {
    const outcomes = await Promise.allSettled([
      list("agents/v1/faults", page.signal).then((broken) => {
        there = broken;
        injected.frame(there);
      }),
      list("compute/v1/faults", page.signal).then((found) => detected.frame(found.filter((each) => each.state === "Active"))),
      list("compute/v1/scenario-runs", page.signal).then((made) => runs.frame(made.sort((a, b) => b.createdAt.localeCompare(a.createdAt)))),
    ]);
    const failed = outcomes.find((each) => each.status === "rejected");
    if (!page.signal.aborted) setText(problem, failed ? /** @type {PromiseRejectedResult} */ (failed).reason.message : "");
  }

  async function lookAtKinds() {
    kinds = await get("agents/v1/fault-kinds", page.signal);
    const chosen = page.query.get("kind") ?? "node-down";
    fill(kind, Object.keys(kinds).map((each) => h("option", { selected: each === chosen }, each)));
    setText(means, kinds[kind.value] ?? "");
    shownCommand.set(asCommand());
    inject.frame();
  }

  /** Separately from the kinds, so that an unavailable service does not reset what was chosen there. */
  async function lookAtScenarios() {
    sync(scenarios, await list("compute/v1/scenarios", page.signal), (each) => each.name, scenarioItem);
  }

  /** @param {any} scenario */
  function scenarioItem(scenario) {
    const run = action(() => ({
      label: "Run", danger: true, off: notEditor() || notAdmin(), command: `matrixctl scenario run ${scenario.name} --remote`,
      does: "It creates the instances it needs, injects its faults, checks its expectations, and always rolls everything back.",
      run: () => call("POST", "compute/v1/scenario-runs", { scenario: scenario.name }), done: (made) => navigate(`/faults/runs/${made.name}`),
    }));
    return h("details", {}, h("summary", {}, h("b", {}, scenario.title), " ", h("code", { class: "muted" }, scenario.name)),
      h("div", { class: "stack" }, h("p", {}, scenario.explanation), h("p", { class: "muted" }, scenario.source), h("ul", { class: "feed" }, (scenario.expect ?? []).map((/** @type {any} */ each) => h("li", {}, h("span", { class: "mark" }, "→"), h("div", {}, each.name || each.metric || each.instance || "", each.within ? ` within ${each.within}` : "")))), run));
  }

  page.poll(1500, look);
  page.retry(lookAtKinds);
  page.retry(lookAtScenarios);
  return {
    frame: (/** @type {any} */ picture) => {
      const names = Object.values(picture.supernodes).flatMap((each) => Object.keys(each.states));
      if (targets.children.length !== Math.min(names.length, 200)) fill(targets, names.slice(0, 200).map((each) => h("option", { value: each })));
      const told = Object.entries(picture.events).sort(([, a], [, b]) => b.at.localeCompare(a.at)).slice(0, 8);
      sync(watchers, told, ([key]) => key, ([, event]) => h("li", { data: { kind: event.kind } }, h("time", {}, clock(event.at)), h("div", {}, `${event.about} `, h("b", {}, event.reason), ` ${event.message}`)));
    },
  };
}

/** A fault's name: small letters, digits and dashes. @param {string} text */
const named = (text) => text.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").slice(0, 63).replace(/-$/, "");

/** The request for a fault; the target may name an NPU (sn0-c03-n2-npu5) or a port (sn0-c03-n2/vpc), as in the command. @param {string} kind @param {string} text @param {string[]} words */
function requested(kind, text, words) {
  const [, node = text, npu, port] = /^(.*-n\d+)(?:-npu(\d+)|\/(.+))$/.exec(text) ?? [];
  const values = words.map((each) => {
    const [key, value = ""] = each.split("=");
    return [key, /^-?(0|[1-9]\d*)(\.\d+)?$/.test(value) ? Number(value) : value]; // 020001001 and 80E39200 are codes
  });
  return { kind, target: node, parameters: { ...(npu ? { npu: Number(npu) } : {}), ...(port ? { port } : {}), ...Object.fromEntries(values) } };
}

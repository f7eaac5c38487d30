// @ts-check
// Plan before you create: where an instance would be placed and why, or what blocks it and what would help.
import { resourcePath, call } from "../core/api.js";
import { navigate, setQuery } from "../core/router.js";
import { session } from "../core/session.js";
import { h, fill, setText, link, plural } from "../parts/dom.js";
import { action, command, notEditor, shellQuote } from "../parts/action.js";
import { table } from "../parts/table.js";

export const title = () => "Placement";

const REASONS = {
  Held: "held by others", Unhealthy: "unhealthy", Cordoned: "cordoned", Closed: "in a closed domain", Draining: "draining", Reserved: "reserved",
  Kept: "kept for a plan", Lost: "lost", NotAvailable: "not available yet", Excluded: "excluded by the request",
};

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  const wanted = (/** @type {string} */ name, /** @type {string} */ other) => page.query.get(name) ?? other;
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {any} */ input, /** @type {string} */ help = "") => {
    input.id = name;
    input.name = name;
    return h("div", { class: "field" }, h("label", { for: name }, label), input, help && h("span", { class: "help" }, help));
  };
  const amount = (/** @type {string} */ name, /** @type {string} */ other, /** @type {number} */ least) => h("input", { type: "number", min: String(least), step: "1", value: wanted(name, other), inputMode: "numeric" });
  const choice = (/** @type {string} */ name, /** @type {string} */ other, /** @type {string[]} */ words) => h("select", {}, words.map((word) => h("option", { selected: wanted(name, other) === word }, word)));
  const inputs = { nodes: amount("nodes", "4", 1), spares: amount("spares", "0", 0), policy: choice("policy", "pack", ["pack", "spread"]), level: choice("level", "cabinet", ["node", "cabinet", "supernode"]), required: choice("required", "no", ["no", "yes"]), priority: amount("priority", "0", 0), preempt: choice("preempt", "no", ["no", "yes"]) };
  const name = h("input", { value: wanted("name", "my-instance"), pattern: "[a-z0-9](?:[a-z0-9\\-]*[a-z0-9])?", maxLength: 63, autocomplete: "off" });
  const result = h("section", { class: "stack", aria: { live: "polite", labelledby: "answer" } });
  const problem = h("p", { class: "problem", role: "alert" });
  /** @type {any} */
  let plan = null;
  let asked = 0;

  const request = () => ({
    nodes: Number(inputs.nodes.value), ...(Number(inputs.spares.value) ? { spares: Number(inputs.spares.value) } : {}),
    placement: { policy: inputs.policy.value, level: inputs.level.value, ...(inputs.required.value === "yes" ? { required: true } : {}) },
    ...(Number(inputs.priority.value) ? { priority: Number(inputs.priority.value) } : {}), ...(inputs.preempt.value === "yes" ? { preemption: "PreemptLowerPriority" } : {}),
  });
  const asCommand = () => `matrixctl plan --nodes ${inputs.nodes.value}${Number(inputs.spares.value) ? ` --spares ${inputs.spares.value}` : ""}${inputs.policy.value === "spread" ? " --policy spread" : ""}${inputs.level.value === "cabinet" ? "" : ` --level ${inputs.level.value}`}${inputs.required.value === "yes" ? " --required" : ""}${Number(inputs.priority.value) ? ` --priority ${inputs.priority.value}` : ""}${inputs.preempt.value === "yes" ? " --preempt" : ""}`;
  const shownCommand = command(asCommand());
  const create = action(() => ({
    label: "Create it", does: `Creates ${name.value} with ${plural(Number(inputs.nodes.value), "node")}, committed together with all three planes or not at all. A CloudMatrixInstance applied with kubectl does the same.`,
    off: notEditor() || (!plan ? "Plan it first" : !plan.fits ? "It does not fit and would wait" : !name.checkValidity() || !name.value ? "Name: lowercase letters, digits and dashes" : ""),
    command: `curl -X PUT -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" ${shellQuote(`${location.origin}/api/${resourcePath("compute/v1/instances", `${session()?.project}/${name.value}`)}`)} -d '${JSON.stringify(request())}'`,
    run: () => call("PUT", resourcePath("compute/v1/instances", `${session()?.project}/${name.value}`), request()), done: () => navigate(`/instances/${session()?.project}/${name.value}`),
  }));
  const form = h("form", { class: "card stack", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void ask(); } },
    h("div", { class: "fields" }, field("nodes", "Nodes", inputs.nodes, "eight NPUs each"), field("spares", "Spares", inputs.spares, "replace lost nodes"), field("policy", "Policy", inputs.policy), field("level", "Over", inputs.level), field("required", "Required", inputs.required, "refuse rather than compromise"), field("priority", "Priority", inputs.priority), field("preempt", "May preempt", inputs.preempt)),
    h("div", { class: "toolbar" }, h("button", { class: "primary" }, "Plan")), shownCommand, problem);
  form.addEventListener("input", () => {
    plan = null;
    asked += 1; // ignore the answer to the former request
    if (result.firstChild) fill(result, h("p", { class: "muted" }, "The request has changed since it was planned."));
    shownCommand.set(asCommand());
    create.frame();
    setQuery(Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])));
  });
  fill(root, h("div", { class: "stack" }, h("div", { class: "heading" }, h("h1", {}, "Placement"), h("span", { class: "muted" }, "Planning reserves nothing.")), form, result,
    h("section", { class: "card toolbar", aria: { label: "Create" } }, field("name", "Name", name), create)));
  name.addEventListener("input", () => { create.frame(); setQuery({ name: name.value }); });

  async function ask() {
    const mine = asked += 1;
    const wanted = request();
    try {
      const found = await call("POST", "resource/v1/plans", wanted);
      if (mine !== asked) return;
      plan = found;
      setText(problem, "");
      fill(result, h("div", { class: "card stack" }, plan.fits ? fits(plan, wanted.placement) : fitsNot(plan)));
    } catch (wrong) {
      if (mine !== asked) return;
      const refused = /** @type {any} */ (wrong);
      plan = null;
      fill(result);
      setText(problem, refused.field && !refused.message.startsWith(refused.field) ? `${refused.field}: ${refused.message}` : refused.message);
    }
    create.frame();
  }
  void ask();
  return {};
}

/** @param {string} node */
const cabinetOf = (node) => node.slice(0, node.lastIndexOf("-"));
/** The domain of a level that a node is in. @type {Record<string, (node: string) => string>} */
const DOMAIN = { node: (node) => node, cabinet: cabinetOf, supernode: (node) => cabinetOf(cabinetOf(node)) };

/** Why members are placed where they are, by the request. @param {string[]} members @param {{policy: string, level: string}} placement */
function why(members, { policy, level }) {
  if (level === "node") return "any nodes of one supernode will do";
  const domains = Map.groupBy(members, DOMAIN[level]);
  const shares = [...domains].map(([name, nodes]) => `${name} gives ${nodes.length}`).join(", ");
  if (policy === "spread") return `as many ${level}s as possible take part: ${shares}`;
  if (domains.size > 1) return `the fewest ${level}s with enough room: ${shares}`;
  return `one ${level} has room for all of it${level === "cabinet" ? ", and it leaves the least unusable room there" : `: ${[...domains.keys()][0]}`}`;
}

/** @param {any} plan @param {{policy: string, level: string}} placement */
function fits(plan, placement) {
  const cabinets = Map.groupBy(plan.members, (/** @type {string} */ node) => cabinetOf(node));
  const places = table("Where", [
    { title: "Cabinet", cell: (each) => each.cabinet }, { title: "Nodes", cell: (each) => each.nodes.length, number: true },
    { title: "Which", cell: (each) => each.nodes.flatMap((/** @type {string} */ node, /** @type {number} */ at) => [at ? ", " : "", link(`/nodes/${node}`, node)]) },
  ], (each) => each.cabinet);
  places.frame([...cabinets].map(([cabinet, nodes]) => ({ cabinet, nodes })));
  const losses = table("Impact of losing one", [
    { title: "Domain", cell: (each) => each.over }, { title: "Members lost", cell: (each) => each.members, number: true },
    { title: "UB bandwidth lost", cell: (each) => `${(each.ubShare * 100).toFixed(1)} %`, number: true },
  ], (each) => each.over);
  losses.frame(plan.blastRadius);
  return [h("h2", { id: "answer" }, h("span", { class: "good" }, "It fits"), `: ${plural(plan.members.length, "node")} in ${plural(cabinets.size, "cabinet")}`),
    h("p", {}, "Why there: ", why(plan.members, placement), "."), plan.spareNodes.length ? h("p", {}, "Spares: ", plan.spareNodes.join(", ")) : null,
    plan.preempts.length ? h("p", { class: "bad" }, "It would preempt ", plan.preempts.join(", ")) : null, places, losses];
}

/** @param {any} plan */
function fitsNot(plan) {
  const total = /** @type {Record<string, number>} */ ({});
  for (const domain of plan.blocking) for (const [reason, count] of Object.entries(domain.reasons)) total[reason] = (total[reason] ?? 0) + /** @type {number} */ (count);
  const words = Object.entries(total).sort((a, b) => b[1] - a[1]).map(([reason, count]) => `${plural(count, "node")} ${REASONS[/** @type {"Held"} */ (reason)] ?? reason}`);
  const closed = plan.blocking.filter((/** @type {any} */ each) => each.reasons.Closed).length;
  const short = plan.blocking.filter((/** @type {any} */ each) => each.short > 0 && !each.reasons.Closed).length;
  const domains = table("Blocked by", [
    { title: "Domain", cell: (each) => each.domain, sort: (each) => each.domain }, { title: "Room", cell: (each) => each.room, number: true, sort: (each) => each.room },
    { title: "Short of", cell: (each) => each.short, number: true, sort: (each) => each.short },
    { title: "Why", cell: (each) => Object.entries(each.reasons).map(([reason, count]) => `${count} ${REASONS[/** @type {"Held"} */ (reason)] ?? reason}`).join(", ") },
  ], (each) => each.domain);
  domains.frame(plan.blocking);
  return [h("h2", { id: "answer" }, h("span", { class: "bad" }, "It does not fit"), `: ${plan.message}`),
    h("p", {}, [closed ? `${plural(closed, "domain")} closed` : "", short ? `${plural(short, "domain")} short of nodes` : "", ...words].filter(Boolean).join(", "), "."),
    domains, h("h3", {}, "What would help"), plan.changes.length ? h("ul", { class: "feed" }, plan.changes.map((/** @type {any} */ change) => h("li", {}, h("span", { class: "mark" }, "→"), h("div", {}, change.message)))) : h("p", {}, "No single change: there are not enough working nodes."),
    plan.earliestStart ? h("p", { class: "muted" }, `It would fit from ${plan.earliestStart} on, if all allocations end as announced.`) : null];
}

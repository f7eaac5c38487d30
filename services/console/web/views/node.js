// @ts-check
// One node: its NPUs and dies, its ports on every plane, its faults, its holder, and whether it accepts new allocations.
import { resourcePath, call, get } from "../core/api.js";
import { h, fill, setText, set, link, sync } from "../parts/dom.js";
import { chip, conditions, showError, showFound, tone } from "../parts/state.js";
import { action, notAdmin } from "../parts/action.js";
import { table } from "../parts/table.js";
import { clock, short, STATES } from "../parts/format.js";

export const title = (/** @type {string[]} */ [name]) => `Node ${name}`;

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  const [name] = page.params;
  const chosen = page.query.get("npu");
  /** @type {any} */
  let node = null;
  /** Keys of the instances that have all or some of it. @type {string[]} */
  let holders = [];
  const state = chip("");
  const facts = h("dl", { class: "facts" });
  const parts = h("div", { class: "parts" });
  const ports = h("div", { class: "ports" });
  const shown = conditions();
  const problem = h("p", { class: "problem", role: "alert" });
  const unseen = h("p", { class: "problem", role: "alert" });
  const faults = table("Faults", [
    { title: "Component", cell: (each) => each.component },
    { title: "Code", cell: (each) => h("code", {}, each.code) },
    { title: "Level", cell: (each) => each.level },
    { title: "Since", cell: (each) => clock(each.since) },
    { title: "Now", cell: (each) => (each.active ? "active" : "over") },
  ], (each) => each.component + each.code, { empty: "No faults reported." });
  const cordoned = () => (node?.cordonedBy ?? []).includes("admin");
  const cordon = action(() => ({
    label: cordoned() ? "Uncordon" : "Cordon",
    does: cordoned() ? `${name} accepts new allocations again, unless it is blocked otherwise.` : `${name} accepts no new allocations; what runs there continues.`,
    command: `matrixctl node ${cordoned() ? "uncordon" : "cordon"} ${name}`,
    off: notAdmin(),
    run: () => call("POST", `resource/v1/nodes/${name}:${cordoned() ? "uncordon" : "cordon"}`),
    done: () => void look(),
  }));
  const service = action(() => ({
    label: node?.state === "Servicing" ? "Back from service" : "Take out for service",
    does: node?.state === "Servicing" ? `${name} is verified, and available once that has passed.` : `Its instance moves off ${name} first; then the node is taken out of service.`,
    command: `matrixctl node ${node?.state === "Servicing" ? "recover" : "service"} ${name}`,
    off: notAdmin(), danger: node?.state !== "Servicing",
    run: () => call("POST", `resource/v1/nodes/${name}:${node?.state === "Servicing" ? "recover" : "service"}`, { reason: "from the console" }),
    done: () => void look(),
  }));
  const body = h("div", { class: "stack", hidden: true },
    h("div", { class: "columns" }, h("section", { class: "card" }, facts), h("section", { class: "card actions", aria: { label: "Actions" } }, cordon, service)),
    h("section", { class: "stack", aria: { labelledby: "npus" } }, h("h2", { id: "npus" }, "NPUs and dies"), parts),
    h("section", { class: "card stack", aria: { labelledby: "ports" } }, h("h2", { id: "ports" }, "Ports"), unseen, ports),
    h("section", { class: "card" }, faults), h("section", { class: "card" }, shown));
  fill(root, h("div", { class: "stack" }, h("div", { class: "heading" }, h("h1", {}, name), state), problem, body));

  async function look() {
    try {
      node = await get(`resource/v1/nodes/${name}`, page.signal);
      const npus = (await get(`resource/v1/npus?filter=${encodeURIComponent(`node=${name}`)}`, page.signal)).items;
      showFound(problem, body, state);
      draw(npus);
    } catch (wrong) {
      if (!page.signal.aborted) showError(wrong, problem, body);
    }
  }

  async function lookAtPorts() {
    if (!node) return;
    try {
      const matrices = await Promise.all(["ub", "rdma", "vpc"].map((plane) => get(`link/v1/planes/${plane}/matrix?supernode=${node.supernode}`, page.signal)));
      sync(ports, matrices.flatMap(rowsOf), (row) => row.name, () => portRow());
      setText(unseen, "");
    } catch (wrong) {
      if (!page.signal.aborted) setText(unseen, `${/** @type {Error} */ (wrong).message}${ports.firstChild ? "; showing the last known state" : ""}`);
    }
  }

  /** The ports of this node, a row for each sub-plane. @param {any} matrix */
  function rowsOf(matrix) {
    const row = matrix.nodes.indexOf(name);
    if (row < 0) return [];
    const planes = [...new Set(matrix.subPlanes)];
    return planes.map((sub) => {
      const columns = matrix.ports.map((/** @type {string} */ _, /** @type {number} */ column) => column).filter((/** @type {number} */ column) => matrix.subPlanes[column] === sub);
      return {
        name: planes.length > 1 ? `${matrix.plane.toUpperCase()} ${matrix.plane === "ub" ? "sub-plane" : "subnet"} ${sub}` : matrix.plane.toUpperCase(),
        cells: columns.map((/** @type {number} */ column) => ({ port: matrix.ports[column], to: matrix.switches[column], state: matrix.states[row][column], percent: matrix.utilisation[row]?.[column] })),
      };
    });
  }

  /** @param {any[]} npus */
  function draw(npus) {
    state.update(node.state);
    fill(facts, fact("Cabinet", link(`/?supernode=${node.supernode}`, node.cabinet)),
      fact("Held by", holders.length ? holders.flatMap((holder, at) => [at ? ", " : "", holder.includes("/") ? link(`/instances/${holder}`, short(holder)) : holder]) : node.allocation ?? "nobody"),
      node.role ? fact("Role", node.role) : null,
      fact("Health", chip(node.health)), fact("Agent", chip(node.agent)), fact("Power", node.power),
      fact("Schedulable", node.schedulable ? "yes" : `no: ${node.unschedulableReason ?? ""}`),
      fact("Cordons", node.cordonedBy.length ? node.cordonedBy.join(", ") : "none"),
      fact("Usable NPUs", `${node.usableNpus} of ${node.npus}`), fact("Firmware", node.firmware ?? ""),
      node.stage ? fact("Stage", node.stage) : null, node.stateMessage ? fact("Message", node.stateMessage) : null);
    sync(parts, npus, (npu) => npu.name, npuCard);
    cordon.frame();
    service.frame();
    shown.frame(node.conditions);
    faults.frame(node.faults);
    if (first) {
      first = false;
      page.poll(3000, lookAtPorts);
      if (chosen) parts.children[Number(chosen)]?.scrollIntoView({ block: "nearest" });
    }
  }
  let first = true;

  /** @param {any} npu */
  function npuCard(npu) {
    const number = npu.name.slice(npu.name.lastIndexOf("npu") + 3);
    const dies = h("div", { class: "dies" });
    const health = h("span", { class: "muted" });
    const card = h("article", { class: "part", aria: { label: `NPU ${number}`, ...(chosen === number ? { current: "true" } : {}) } }, h("header", {}, h("h3", {}, `NPU ${number}`), health), dies);
    card.update = (/** @type {any} */ now) => {
      setText(health, now.health === "Healthy" ? "" : now.health);
      sync(dies, now.dies, (die) => String(die.die), () => {
        const text = h("span", {});
        const element = h("div", { class: "die" }, text);
        element.update = (/** @type {any} */ die) => {
          setText(text, `die ${die.die}: ${die.health === "Healthy" ? (die.schedulable ? "healthy" : "kept out") : die.health.toLowerCase()}`);
          set(element, "data-tone", die.health === "Healthy" ? (die.schedulable ? null : "warn") : tone(die.health));
        };
        return element;
      });
    };
    return card;
  }

  page.poll(1500, look);
  return {
    frame: (/** @type {any} */ picture) => {
      const held = picture.supernodes[name.slice(0, name.indexOf("-"))]?.holders[name];
      const now = [...new Set([held ?? []].flat())].filter(Boolean);
      if (now.join() === holders.join()) return;
      holders = now;
      void look();
    },
  };
}

/** @param {string} term @param {any} value */
const fact = (term, value) => [h("dt", {}, term), h("dd", {}, value)];

function portRow() {
  const cells = h("div", { class: "cells" });
  const name = h("span", { class: "muted" });
  const row = h("div", { class: "port-row" }, name, cells);
  row.update = (/** @type {any} */ item) => {
    setText(name, item.name);
    const bad = item.cells.filter((/** @type {any} */ each) => each.state !== "u");
    cells.setAttribute("role", "img");
    cells.setAttribute("aria-label", `${item.name}: ${item.cells.length} ports, ${bad.length ? bad.map((/** @type {any} */ each) => `${each.port} ${STATES[each.state]?.[0] ?? each.state}`).join(", ") : "all up"}`);
    sync(cells, item.cells, (each) => each.port, () => {
      const cell = h("span", { class: "port" });
      cell.update = (/** @type {any} */ each) => {
        set(cell, "data-s", each.state);
        cell.style.background = each.state === "u" ? `var(--heat-${!each.percent ? 0 : each.percent < 20 ? 1 : each.percent < 50 ? 2 : each.percent < 80 ? 3 : 4})` : "";
        set(cell, "title", `${each.port}${each.to ? ` → ${each.to}` : ""}${each.percent === undefined ? "" : `, ${each.percent} % used`}`);
        setText(cell, { u: "", d: "!", x: "×", o: "–" }[/** @type {"u"} */ (each.state)] ?? "");
      };
      return cell;
    });
  };
  return row;
}

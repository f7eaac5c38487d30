// @ts-check
// A served model right now: latencies, throughput, pools, cache, and the autoscaler's decisions with their reasons.
import { resourcePath, call, get, list } from "../core/api.js";
import { setQuery } from "../core/router.js";
import { h, fill, setText, set, link, plural, sync } from "../parts/dom.js";
import { action, notEditor, shellQuote, invalidInput } from "../parts/action.js";
import { chip } from "../parts/state.js";
import { lineChart } from "../parts/chart.js";
import { table } from "../parts/table.js";
import { clock, duration, number, short, times } from "../parts/format.js";

export const title = () => "Serving";
const KEPT = 300;

/** @param {HTMLElement} root @param {any} page */
export function mount(root, page) {
  let chosen = page.query.get("deployment") ?? "";
  /** @type {any} */
  let deployment = null;
  /** @type {Record<string, (number | null)[]>} */
  let history = {};
  const pick = h("div", { class: "toolbar", role: "group", aria: { label: "Deployments" } });
  const none = h("p", { class: "muted", hidden: true }, "No model is being served. To serve one: ", h("code", {}, "kubectl apply -f examples/deepseek-r1.yaml"));
  const state = chip("");
  const why = h("p", { class: "muted", role: "status" });
  const figures = h("dl", { class: "figures" });
  const pools = h("dl", { class: "facts" });
  const charts = {
    tokens: lineChart("Tokens per second", "tokens/s"), perNpu: lineChart("Tokens per second and NPU", "tokens/s", 1), ttft: lineChart("Time to first token, P90", "ms"), tpot: lineChart("Time per output token, P90", "ms", 1),
    cache: lineChart("Prompt tokens found in the cache", "%", 1), queue: lineChart("Waiting requests", "requests"),
  };
  const policies = h("div", { class: "stack" });
  const rate = h("input", { type: "number", id: "rate", min: "0.1", step: "0.1", value: "20", required: true });
  const load = action(() => ({
    label: deployment?.load ? "Stop the load" : "Start load", danger: false,
    off: notEditor() || (!deployment ? "There is no deployment" : deployment.load ? "" : invalidInput(rate)),
    does: deployment?.load ? "The built-in load generator stops." : `The built-in load generator sends ${rate.value} requests per emulated second.`,
    command: deployment?.load ? `curl -X DELETE -H "Authorization: Bearer $TOKEN" ${shellQuote(`${location.origin}/api/${resourcePath("infer/v1/deployments", chosen, "/load")}`)}` : `curl -X PUT -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" ${shellQuote(`${location.origin}/api/${resourcePath("infer/v1/deployments", chosen, "/load")}`)} -d '{"requestsPerSecond": ${rate.value}}'`,
    run: () => call(deployment.load ? "DELETE" : "PUT", resourcePath("infer/v1/deployments", chosen, "/load"), deployment.load ? undefined : { requestsPerSecond: Number(rate.value) }), done: () => void look(),
  }));
  const sent = h("p", { class: "muted", role: "status" });
  rate.addEventListener("input", () => load.frame());
  const body = h("div", { class: "stack", hidden: true }, figures, h("div", { class: "charts" }, Object.values(charts)),
    h("div", { class: "columns" }, h("section", { class: "card stack", aria: { labelledby: "pools" } }, h("h2", { id: "pools" }, "Pools"), pools),
      h("section", { class: "card stack", aria: { labelledby: "load" } }, h("h2", { id: "load" }, "Load"), h("div", { class: "toolbar" }, h("label", { for: "rate" }, "Requests per second"), rate), load, sent)),
    h("section", { class: "card stack", aria: { labelledby: "policies" } }, h("h2", { id: "policies" }, "Autoscaler decisions"), policies));
  const problem = h("p", { class: "problem", role: "alert" });
  state.hidden = true; // until it is known what is served
  fill(root, h("div", { class: "stack" }, h("div", { class: "heading" }, h("h1", {}, "Serving"), state, why), problem, none, pick, body));

  /** Select a deployment and clear what is shown of the one before. @param {string} key */
  function choose(key) {
    chosen = key;
    history = {};
    fill(figures);
    fill(pools);
    setText(sent, "");
    setText(why, "");
    for (const each of Object.values(charts)) each.frame([]);
  }

  async function look() {
    try {
      const all = await list("infer/v1/deployments", page.signal);
      const keys = all.map((each) => `${each.project}/${each.name}`);
      none.hidden = all.length > 0;
      body.hidden = state.hidden = why.hidden = !all.length;
      if (!keys.includes(chosen)) choose(keys[0] ?? "");
      sync(pick, keys, (key) => key, (key) => {
        const button = h("button", { onclick: () => { choose(key); setQuery({ deployment: key }); void look(); } }, short(key));
        button.update = () => set(button, "aria-pressed", String(key === chosen));
        return button;
      });
      pick.hidden = all.length < 2;
      deployment = all.find((each) => `${each.project}/${each.name}` === chosen) ?? null;
      const asked = chosen;
      const statistics = deployment && await get(resourcePath("infer/v1/deployments", asked, "/statistics"), page.signal);
      if (asked !== chosen) return; // another was chosen meanwhile
      if (statistics) draw(statistics);
      const found = await list("compute/v1/scaling-policies", page.signal);
      if (!found.length) fill(policies, h("p", { class: "muted" }, "No scaling policies. To create one: ", h("code", {}, "kubectl apply -f examples/scaling-policy.yaml")));
      else sync(policies, found, (each) => `${each.project}/${each.name}`, policyItem);
      setText(problem, "");
    } catch (wrong) {
      if (!page.signal.aborted) setText(problem, /** @type {Error} */ (wrong).message);
    }
    load.frame();
  }

  /** @param {any} now */
  function draw(now) {
    state.update(deployment.state);
    setText(why, deployment.state === "Serving" ? "" : readyMessage(deployment));
    /** @type {[string, string, string][]} */
    const shown = [
      ["TTFT P50", number(times(now.ttft?.p50, 1000)), "ms"], ["TTFT P99", number(times(now.ttft?.p99, 1000)), "ms"], ["TPOT P50", number(times(now.tpot?.p50, 1000), 1), "ms"], ["TPOT P99", number(times(now.tpot?.p99, 1000), 1), "ms"],
      ["Throughput", number(now.tokensPerSecond), "tokens/s"], ["Per NPU", number(now.tokensPerSecondPerNpu, 1), "tokens/s"], ["Requests", number(now.requestsPerSecond, 1), "per s"], ["Cache hits", number(times(now.cacheHitRateTokens, 100), 1), "% of tokens"],
      ["Decode step", number(now.decodeStepMs, 1), "ms"], ["KV memory", number(now.kvUsage * 100, 1), "% used"], ["Waiting", number(now.waiting + now.queued), "requests"], ["Decoding", number(now.decoding), "requests"],
    ];
    sync(figures, shown, ([name]) => name, () => {
      const term = h("dt", {});
      const value = h("span", {});
      const unit = h("small", {});
      const element = h("div", {}, term, h("dd", {}, value, " ", unit));
      element.update = (/** @type {[string, string, string]} */ [name, text, of]) => { setText(term, name); setText(value, text); setText(unit, of); };
      return element;
    });
    const points = { tokens: now.tokensPerSecond, perNpu: now.tokensPerSecondPerNpu, ttft: times(now.ttft?.p90, 1000), tpot: times(now.tpot?.p90, 1000), cache: times(now.cacheHitRateTokens, 100), queue: now.waiting + now.queued };
    for (const [name, value] of Object.entries(points)) {
      history[name] = [...(history[name] ?? []), value].slice(-KEPT);
      charts[/** @type {"tokens"} */ (name)].frame(history[name]);
    }
    setText(sent, now.load ? loadCounts(now.load) : "");
    const size = deployment.pools ?? {};
    fill(pools, [["Instance", link(`/instances/${deployment.project}/${deployment.instance}`, deployment.instance)], ["Model", deployment.model], ["Prefill", size.prefillNpus ? `${plural(size.prefillInstances, "instance")}, ${size.prefillNpus} NPUs` : "–"],
      ["Decode", size.decodeNpus ? `${size.decodeNpus} NPUs, ${size.expertsPerDie ? "expert parallel over " : ""}${size.decodeDies} dies` : "–"], ["Caching", size.cachingNodes ? `${plural(size.cachingNodes, "node")}, ${number(size.cacheBlocks)} blocks` : "–"],
      ["Context cache", !deployment.contextCache ? "off" : deployment.cachePlane || size.cachePlane ? `over ${(deployment.cachePlane || size.cachePlane).toUpperCase()}` : "–"], ["Endpoint", h("code", {}, deployment.endpoint)]].map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
  }

  page.poll(1000, look);
  return { close: () => Object.values(charts).forEach((each) => each.close()) };
}

/** Why a deployment does not serve. @param {any} deployment */
const readyMessage = ({ conditions }) => conditions?.find((/** @type {any} */ each) => each.type === "Ready")?.message ?? "";

/** What became of the requests of the built-in load. @param {any} load */
function loadCounts({ requestsPerSecond, submitted, refused, skipped }) {
  const parts = [`${number(submitted)} accepted`, `${number(refused)} refused`];
  if (skipped) parts.push(`${number(skipped)} not generated, as this host could not keep up`);
  return `${number(requestsPerSecond, requestsPerSecond % 1 ? 1 : 0)} per emulated second: ${parts.join(", ")}.`;
}

/** @param {any} policy */
function policyItem(policy) {
  const heading = h("h3", {});
  const now = h("p", {});
  const decisions = table("Decisions", [
    { title: "At", cell: (each) => clock(each.at) }, { title: "Nodes", cell: (each) => (each.currentReplicas === each.desiredReplicas ? each.currentReplicas : `${each.currentReplicas} → ${each.desiredReplicas}`), number: true },
    { title: "Reason", cell: (each) => h("b", {}, each.reason) }, { title: "With its figures", cell: (each) => each.message },
  ], (each) => each.at + each.reason + each.message, { empty: "It decided nothing yet." });
  const element = h("article", { class: "stack" }, heading, now, decisions);
  element.update = (/** @type {any} */ each) => {
    setText(heading, `${each.name}: ${each.scaleTargetRef.kind ?? ""} ${each.scaleTargetRef.name ?? ""}`);
    setText(now, `${each.currentReplicas} nodes now, ${each.desiredReplicas} wanted, between ${each.minReplicas} and ${each.maxReplicas}. ${each.message ?? ""}`);
    decisions.frame([...(each.decisions ?? [])].reverse());
  };
  return element;
}

"""The steps of the demo: apply, serve, lose a node, heal, cut cables, scale, share what is left, delete, nothing left.

Everything is asked over REST, the Kubernetes API and the OpenAI-compatible endpoint, as a user would; the only thing
told to the emulated hardware is the fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import NotFound, Unavailable
from matrixcommon.model.quantities import duration_text
from services.matrixctl.api_client import ApiClient
from services.matrixctl.demo import sharing
from services.matrixctl.demo.chart import chart
from services.matrixctl.demo.cut_cables import cut_cables
from services.matrixctl.demo.load import Load
from services.matrixctl.demo.story import Step, StepFailed, check, until
from services.matrixctl.kubernetes import Cluster
from services.matrixctl.output.resource_kinds import dig
from services.matrixctl.output.screen import say

NAME = "deepseek-r1"
SCALED_TO = 20
PROMPTS = (
    "In one sentence: what is a supernode?",
    "Why does a mixture of experts want a fast all-to-all?",
    "What should an operator do when a node is lost?",
)
PATIENCE_WALL_S = 60.0
STEADY_SHARE = 0.8
"""Throughput counts as recovered at this share of what it was before the loss."""
DIPPED_SHARE = 0.95
FAULT = "demo-node-down"
PASSING = ("NodesReady", "LinksReady", "QosSatisfied", "Ready")


@dataclass
class Demo:
    """One telling: the stack it is told on, and what the steps hand on to each other."""

    reach: ApiClient
    cluster: Cluster
    manifest: Path
    load: Load
    lost: str = ""
    steady_tokens_per_s: float = 0.0
    marks: list[tuple[float, str]] = field(default_factory=list)

    def instance(self) -> dict[str, Any]:
        """The instance as Kubernetes shows it; {} where there is none."""
        return self.cluster.instance(NAME) or {}

    def state(self) -> str:
        return str(dig(self.instance(), "status.state") or "")

    def members(self) -> list[dict[str, Any]]:
        return dig(self.instance(), "status.members") or []

    def progress(self) -> str:
        """One line of how far the instance is."""
        current = self.instance()
        ready, desired = dig(current, "status.readyNodes") or 0, dig(current, "spec.nodes") or 0
        return f"{dig(current, 'status.state') or 'not seen yet'}, {ready}/{desired} nodes ready"

    def mark(self, letter_and_text: str) -> None:
        self.marks.append((self.load.now(), letter_and_text))


def run_and_say(demo: Demo, lines: list[str]) -> None:
    say(f"   [bold]$ {demo.cluster.last_command}[/]")
    for line in lines:
        say(f"   {line}")


def conditions(current: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in dig(current, "status.conditions") or []}


def active(demo: Demo, nodes: int) -> bool:
    """The instance is Active at that size, and says so for the wish it was last given."""
    current = demo.instance()
    return (
        dig(current, "status.state") == "Active"
        and dig(current, "status.readyNodes") == nodes
        and (dig(current, "status.observedGeneration") or 0) >= dig(current, "metadata.generation")
    )


# --- the steps


def apply(demo: Demo) -> None:
    check(demo.cluster.instance(NAME) is None, f"{NAME} is there already; `kubectl delete cmi {NAME}` removes it")
    run_and_say(demo, demo.cluster.apply(demo.manifest))
    desired = until("the wish is stored", lambda: dig(demo.instance(), "spec.nodes"), 10.0)
    say(f"   asked for {desired} nodes ({desired * 8} NPUs) and a spare")


def become_active(demo: Demo) -> None:
    desired = dig(demo.instance(), "spec.nodes")
    until("becoming Active", lambda: active(demo, desired), PATIENCE_WALL_S, progress=demo.progress)
    current = conditions(demo.instance())
    check(all(current.get(kind) == "True" for kind in PASSING), f"Active, but its conditions are {current}")
    run_and_say(demo, demo.cluster.show("cmi,cminf"))
    say("   true as agents report it: " + ", ".join(kind for kind, status in current.items() if status == "True"))
    planes = {view["plane"]: view["state"] for view in slices(demo)}
    check(sorted(planes) == ["rdma", "ub", "vpc"], f"expected a slice on each of three planes, found {planes}")
    say("   slices: " + ", ".join(f"{plane} {state}" for plane, state in sorted(planes.items())))


def slices(demo: Demo) -> list[dict[str, Any]]:
    return [view for view in demo.reach.list("link", "/v1/slices") if view.get("allocation") == NAME]


def chat(demo: Demo) -> None:
    """A few completions, streamed, through the OpenAI client."""
    say("   [dim]the words are made up; when they come is not[/]")
    until("serving", lambda: serving(demo), PATIENCE_WALL_S, progress=lambda: serving_text(demo))
    import openai

    client = openai.OpenAI(
        base_url=demo.reach.url("infer") + "/v1", api_key=demo.reach.folder.admin_token(), timeout=30.0, max_retries=3
    )
    for prompt in PROMPTS:
        until("an answer", partial(_ask, client, prompt), PATIENCE_WALL_S)


def _ask(client: Any, prompt: str) -> bool:
    """One streamed completion, shown. Raises Unavailable where the stream breaks off, so that it is asked again."""
    import httpx
    import openai

    began = time.monotonic()
    first_s, text = None, ""
    try:
        stream = client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": prompt}], max_tokens=24, stream=True
        )
        for chunk in stream:
            piece = (chunk.choices[0].delta.content or "") if chunk.choices else ""
            if piece and first_s is None:
                first_s = time.monotonic() - began
            text += piece
    except (openai.APIError, httpx.HTTPError) as broken:
        raise Unavailable(f"the endpoint broke off: {broken}") from broken
    check(bool(text.strip()), f"the answer to {prompt!r} was empty")
    say(f"   [bold]>[/] {prompt}\n     {' '.join(text.split())[:100]}")
    all_s = time.monotonic() - began
    say(f"     [dim]first token after {first_s or 0:.2f} s of the wall, the last after {all_s:.2f} s[/]")
    return True


def serving(demo: Demo) -> bool:
    return serving_text(demo) == "Serving"


def serving_text(demo: Demo) -> str:
    return str(dig(demo.cluster.serving(NAME) or {}, "status.state") or "no state yet")


def put_under_load(demo: Demo) -> None:
    demo.load.start()

    def steady() -> float | None:
        return demo.load.steady()

    demo.steady_tokens_per_s = until("throughput settles", steady, 30.0, progress=demo.load.text)
    say(f"   {demo.steady_tokens_per_s:,.0f} tokens per emulated second on {dig(demo.instance(), 'spec.nodes')} nodes")


def lose_a_node(demo: Demo) -> None:
    roles = demo.reach.call("infer", "GET", f"/v1/deployments/{NAME}")["roles"]
    demo.lost = demo.load.node_to_lose(roles)
    body = {"kind": "node-down", "target": demo.lost, "parameters": {}}
    demo.reach.call("agents", "PUT", f"/v1/faults/{FAULT}", body=body)
    demo.mark("x: power lost")
    say(f"   power off for {demo.lost}; nobody tells the control plane")

    def noticed() -> str | None:
        node = demo.reach.call("resource", "GET", f"/v1/nodes/{demo.lost}")
        return node["agent"] if node["agent"] in ("Stale", "Lost") else None

    began = time.monotonic()
    seen = until("its agent falls silent", noticed, 30.0)
    say(f"   {time.monotonic() - began:.1f} s later the node's agent counts as {seen}")


def heal(demo: Demo) -> None:
    """The member is replaced from the spare, and throughput comes back."""
    desired = dig(demo.instance(), "spec.nodes")
    seen_states: list[str] = []

    def replaced() -> bool:
        state = demo.state()
        if not seen_states or seen_states[-1] != state:
            seen_states.append(state)
            if state == "Repairing":
                demo.mark("r: repair began")
        names = [member["node"] for member in demo.members()]
        return bool(names) and demo.lost not in names and active(demo, desired)

    until("repairing from the spare", replaced, PATIENCE_WALL_S, progress=demo.progress)
    demo.mark("a: active again")
    say(f"   states seen: {' > '.join(seen_states)}; {demo.lost} is no member any more")

    def recovered() -> float | None:
        now = demo.load.steady()
        return now if now is not None and now >= STEADY_SHARE * demo.steady_tokens_per_s else None

    now = until("throughput recovers", recovered, 30.0, progress=demo.load.text)
    least = demo.load.least_since(demo.marks[0][0])
    check(
        least < DIPPED_SHARE * demo.steady_tokens_per_s,
        f"a node was lost and throughput never fell below {least:,.0f} tokens/s; is it measured?",
    )
    samples = demo.load.samples()
    for line in chart(samples, demo.marks, unit=f"{duration_text(samples[-1][0] - samples[0][0])} of emulated time"):
        say("   " + line)
    say("   tokens per emulated second;  " + ",  ".join(label for _, label in demo.marks))
    say(f"   {demo.steady_tokens_per_s:,.0f} before, {least:,.0f} at the worst, {now:,.0f} now")


def scale(demo: Demo) -> None:
    run_and_say(demo, demo.cluster.scale(NAME, SCALED_TO))
    until("scaling", lambda: active(demo, SCALED_TO), PATIENCE_WALL_S, progress=demo.progress)
    current = demo.reach.call("resource", "GET", f"/v1/allocations/{NAME}")
    check(current["nodes"] == SCALED_TO, f"the allocation has {current['nodes']} nodes")
    say(f"   {SCALED_TO} nodes, {current['npus']} NPUs")


def delete(demo: Demo) -> None:
    demo.load.stop()
    with suppress(NotFound):
        demo.reach.call("agents", "DELETE", f"/v1/faults/{FAULT}")
    run_and_say(demo, demo.cluster.delete(demo.manifest))

    def gone() -> bool:
        return demo.cluster.instance(NAME) is None and demo.cluster.serving(NAME) is None

    until("given back, step by step", gone, PATIENCE_WALL_S, progress=demo.progress)


def nothing_left(demo: Demo) -> None:
    """Ask everyone."""
    left: dict[str, Callable[[], list[Any]]] = {
        "instances": lambda: demo.reach.list("compute", "/v1/instances"),
        "allocations": lambda: demo.reach.list("resource", "/v1/allocations"),
        "slices": lambda: demo.reach.list("link", "/v1/slices"),
        "deployments": lambda: demo.reach.list("infer", "/v1/deployments"),
        "pods": lambda: demo.cluster.items("/api/v1/namespaces/default/pods"),
        "NPUs held": lambda: [npu for npu in demo.reach.list("resource", "/v1/npus") if npu.get("allocation")],
        "nodes not Available": lambda: [
            node for node in demo.reach.list("resource", "/v1/nodes") if node["state"] != "Available"
        ],
    }
    for what, question in left.items():
        _none(what, question)


def _none(what: str, question: Callable[[], list[Any]]) -> None:
    """Wait until there is none of it (agents clean nodes for a while), and say so."""
    seen: list[Any] = []

    def none_left() -> bool:
        seen[:] = question()
        return not seen

    until(f"no {what}", none_left, PATIENCE_WALL_S, progress=lambda: f"{len(seen)} left")
    say(f"   {what}: 0")


STEPS: tuple[Step, ...] = (
    Step("apply", "Ask for a supernode instance with DeepSeek-R1 on it", apply),
    Step("active", "Nodes, planes and spare are committed together, agents bring the nodes up", become_active),
    Step("chat", "Talk to the model through the OpenAI client", chat),
    Step("load", "Put it under load", put_under_load),
    Step("lose", "A node loses power", lose_a_node),
    Step("heal", "The instance repairs itself", heal),
    Step("cut", "Most cables of a decoding node are cut, and mended", cut_cables),
    Step("scale", f"Scale to {SCALED_TO} nodes", scale),
    Step("plan", "Ask what would fit, and what would help", sharing.plan),
    Step("priority", "Somebody of higher priority puts a guest out, who waits and comes back", sharing.preempt),
    Step("close", "A cabinet is closed, and who lies there moves out", sharing.close_cabinet),
    Step("delete", "Delete everything", delete),
    Step("nothing-left", "Prove that nothing is left", nothing_left),
)

__all__ = ["STEPS", "Demo", "StepFailed"]

"""The steps of the failover demo: apply, serve, lose a node, a cabinet and a switch, heal, cut cables, scale, share the
rest, delete, leave nothing behind.

All requests go through REST, the Kubernetes API and the OpenAI-compatible endpoint, as a user's would; the emulated
hardware is told nothing but the fault.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from matrixcommon.model.errors import Unavailable
from matrixcommon.model.quantities import format_duration
from services.matrixctl.demo import shared_steps, sharing
from services.matrixctl.demo.chart import chart
from services.matrixctl.demo.cut_cables import cut_cables
from services.matrixctl.demo.losses import CABINET_FAULT, SWITCH_FAULT, lose_a_cabinet, lose_a_switch
from services.matrixctl.demo.shared_steps import TIMEOUT_WALL_S, Demo, DemoRun
from services.matrixctl.demo.step_runner import Step, StepFailed, check, wait_until
from services.matrixctl.output.columns import value_at
from services.matrixctl.output.screen import echo

NAME = "deepseek-r1"
SCALED_TO = 20
REQUESTS_PER_S = 20.0
PROMPTS = (
    "In one sentence: what is a supernode?",
    "Why does a mixture of experts want a fast all-to-all?",
    "What should an operator do when a node is lost?",
)
STEADY_SHARE = 0.8
"""Throughput counts as recovered at this share of its value before the loss."""
DIPPED_SHARE = 0.95
FAULT = "demo-node-down"


@dataclass
class FailoverRun(DemoRun):
    """One run of the failover demo, with the state that its steps share."""

    lost: str = ""
    steady_tokens_per_s: float = 0.0
    lost_at: float = 0.0

    def stop_load(self) -> None:
        super().stop_load()
        self.repair_hardware(FAULT, CABINET_FAULT, SWITCH_FAULT)


# --- the steps


def chat(demo: FailoverRun) -> None:
    """Stream a few completions through the OpenAI client."""
    echo("   [dim]the text is synthetic; its timing is not[/]")
    shared_steps.serve(demo)
    import openai

    client = openai.OpenAI(
        base_url=demo.client.url("infer") + "/v1", api_key=demo.client.folder.admin_token(), timeout=30.0, max_retries=3
    )
    for prompt in PROMPTS:
        wait_until("an answer", partial(_ask, client, prompt), TIMEOUT_WALL_S)


def _ask(client: Any, prompt: str) -> bool:
    """Stream and print one completion. Raises Unavailable if the stream breaks off, so that it is retried."""
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
    echo(f"   [bold]>[/] {prompt}\n     {' '.join(text.split())[:100]}")
    all_s = time.monotonic() - began
    echo(f"     [dim]first token after {first_s or 0:.2f} s of wall time, last after {all_s:.2f} s[/]")
    return True


def put_under_load(demo: FailoverRun) -> None:
    demo.put_load(REQUESTS_PER_S)
    demo.gauge.start()
    seen = demo.gauge.throughput
    demo.steady_tokens_per_s = wait_until("throughput settles", seen.steady, TIMEOUT_WALL_S, progress=seen.text)
    nodes = value_at(demo.instance(), "spec.nodes")
    echo(f"   {demo.steady_tokens_per_s:,.0f} tokens per emulated second on {nodes} nodes")


def lose_a_node(demo: FailoverRun) -> None:
    roles = demo.client.call("infer", "GET", f"/v1/deployments/{NAME}")["roles"]
    decoding = sorted(node for node, role in roles.items() if role == "decode")
    demo.lost = decoding[len(decoding) // 2]  # what it carried is felt at once
    demo.break_hardware(FAULT, "node-down", demo.lost)
    demo.lost_at = demo.gauge.mark("x", "power lost")
    echo(f"   {demo.lost} is powered off; the control plane is not told")

    def noticed() -> str | None:
        node = demo.client.call("resource", "GET", f"/v1/nodes/{demo.lost}")
        return node["agent"] if node["agent"] in ("Stale", "Lost") else None

    began = time.monotonic()
    seen = wait_until("its agent falls silent", noticed, TIMEOUT_WALL_S)
    echo(f"   {time.monotonic() - began:.1f} s later the node's agent is {seen}")


def heal(demo: FailoverRun) -> None:
    """Wait until the spare has replaced the member and throughput has recovered."""
    desired = value_at(demo.instance(), "spec.nodes")
    seen_states: list[str] = []

    def replaced() -> bool:
        state = demo.state()
        if not seen_states or seen_states[-1] != state:
            seen_states.append(state)
            if state == "Repairing":
                demo.gauge.mark("r", "repair began")
        names = [member["node"] for member in demo.members()]
        return bool(names) and demo.lost not in names and demo.active(desired)

    wait_until("repairing from the spare", replaced, TIMEOUT_WALL_S, progress=demo.progress)
    echo(f"   states seen: {' > '.join(seen_states)}; {demo.lost} is no longer a member")

    seen = demo.gauge.throughput

    def recovered() -> float | None:
        now = seen.steady()
        return now if now is not None and now >= STEADY_SHARE * demo.steady_tokens_per_s else None

    now = wait_until("throughput recovers", recovered, TIMEOUT_WALL_S, progress=seen.text)
    least = seen.min_since(demo.lost_at)
    check(
        least < DIPPED_SHARE * demo.steady_tokens_per_s,
        f"a node was lost, but throughput never fell below {least:,.0f} tokens/s: the measurement is suspect",
    )
    samples, marks = seen.samples(), [mark for mark in demo.gauge.marks() if mark.at >= demo.lost_at]
    for line in chart(
        samples,
        [(mark.at, mark.letter) for mark in marks],
        unit=f"{format_duration(samples[-1][0] - samples[0][0])} of emulated time",
    ):
        echo("   " + line)
    echo("   tokens per emulated second;  " + ",  ".join(f"{mark.letter}: {mark.text}" for mark in marks))
    echo(f"   {demo.steady_tokens_per_s:,.0f} before, {least:,.0f} at the worst, {now:,.0f} now")


def scale(demo: FailoverRun) -> None:
    demo.run_command(demo.cluster.scale(NAME, SCALED_TO))
    wait_until("scaling", lambda: demo.active(SCALED_TO), TIMEOUT_WALL_S, progress=demo.progress)
    current = demo.client.call("resource", "GET", f"/v1/allocations/{NAME}")
    check(current["nodes"] == SCALED_TO, f"the allocation has {current['nodes']} nodes")
    echo(f"   {SCALED_TO} nodes, {current['npus']} NPUs")


STEPS: tuple[Step, ...] = (
    Step("apply", "Request a supernode instance with DeepSeek-R1 on it", shared_steps.apply),
    Step("active", "Nodes, planes and spare are reserved together; agents start the nodes", shared_steps.become_active),
    Step("chat", "Talk to the model through the OpenAI client", chat),
    Step("load", "Put it under load", put_under_load),
    Step("lose", "A node loses power", lose_a_node),
    Step("heal", "The instance repairs itself", heal),
    Step("cabinet", "A whole cabinet loses power", lose_a_cabinet),
    Step("switch", "A second-level switch goes down", lose_a_switch),
    Step("cut", "Most cables of a decode node are cut, and repaired", cut_cables),
    Step("scale", f"Scale to {SCALED_TO} nodes", scale),
    Step("plan", "Plan a request that does not fit", sharing.plan),
    Step("priority", "A request of higher priority preempts a guest, which waits and returns", sharing.preempt),
    Step("close", "A cabinet is closed, and its tenant moves out", sharing.close_cabinet),
    Step("delete", "Delete everything", shared_steps.delete),
    Step("nothing-left", "Prove that nothing is left", shared_steps.check_nothing_left),
)

FAILOVER = Demo(
    "failover",
    "failover: apply, serve, lose a node, a cabinet and a switch, heal, cut cables, scale, delete",
    "deepseek-r1.yaml",
    STEPS,
    lambda client, cluster, manifest: FailoverRun(client, cluster, manifest, NAME),
    time_scale=60.0,
)

__all__ = ["FAILOVER", "STEPS", "Demo", "StepFailed"]

"""`matrixctl demo`: start a stack, run a demo on it, and stop the stack."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from matrixcommon.model.errors import MatrixError, NotFound
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.console_link import console_link
from services.matrixctl.clients.kubernetes import cluster_of
from services.matrixctl.demo.autoscale import AUTOSCALE
from services.matrixctl.demo.steps import FAILOVER
from services.matrixctl.demo.story import Outcome, tell
from services.matrixctl.demo.telling import Story
from services.matrixctl.output.screen import EXIT_REFUSED, one_line, say
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.supervisor import StackRequest
from services.matrixctl.supervisor.up import show_progress, start_supervisor, stop_stack

STORIES: dict[str, Story] = {story.name: story for story in (FAILOVER, AUTOSCALE)}

READY_PATIENCE_WALL_S = 120.0
PATIENCE_WALL_S = 60.0
"""How long one request may take: a busy machine may keep a service from answering for tens of seconds."""


def example(name: str) -> Path:
    """Find a manifest of the examples folder: in the checkout, or else in the installed package. Raises NotFound."""
    beside = Path(__file__).resolve().parents[3] / "examples" / name
    if beside.exists():
        return beside
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("cloudmatrix") or ():
            if file.name == name and file.parent.name == "examples":
                return Path(str(file.locate())).resolve()
    raise NotFound(f"the example {name} is neither in {beside.parent} nor in the installed package")


def run_demo(story: Story, state: Path, keep: bool) -> int:
    """Run the demo; returns 0 only if every step succeeded. A stack left by an earlier demo is stopped first."""
    folder = StateFolder(state)
    began = time.monotonic()
    stop_stack(folder)
    try:
        say(f"[bold cyan]0/{len(story.steps)} Start the control plane, 48 emulated nodes and a Kubernetes API[/]")
        supervisor = start_supervisor(folder, StackRequest(scale=story.time_scale).to_json())
        show_progress(folder, supervisor, READY_PATIENCE_WALL_S)
        took = time.monotonic() - began
        say(f"   [dim]{took:.1f} s; an emulated minute takes {60 / story.time_scale:g} s here[/]")
        outcome = tell_on(folder, story)
    except MatrixError as refused:
        outcome = Outcome(failed="start", seen=one_line(refused))
    finally:
        if not keep:
            stop_stack(folder)
    return conclude(outcome, folder, keep, time.monotonic() - began)


def tell_on(folder: StateFolder, story: Story) -> Outcome:
    """Run the demo on a stack that is ready. Requests to a service that is briefly down are retried."""
    reach, cluster = ApiClient.of(folder), cluster_of(folder)
    reach.deadline_wall_s = reach.patience_wall_s = cluster.patience_wall_s = PATIENCE_WALL_S
    telling = story.begin(reach, cluster, example(story.manifest))
    try:
        return tell(story.steps, telling)
    finally:
        telling.end()


def conclude(outcome: Outcome, folder: StateFolder, keep: bool, took_wall_s: float) -> int:
    if not outcome.ok:
        say(f"\n[bold red]the demo failed at step `{outcome.failed}`[/]: {outcome.seen}")
        say(f"logs: {folder.logs}; use --keep to leave the stack running for inspection")
        return EXIT_REFUSED
    say(f"\n[bold green]every step succeeded[/], in {took_wall_s:.0f} s.")
    flag = f"--state {folder.path}"
    if keep:
        say("[bold]the stack keeps running.[/] Its console, with a login link that is valid once, for a minute:")
        say(f"  {console_link(ApiClient.of(folder))}")
        say(f"  matrixctl console {flag}    prints another link; matrixctl down {flag} stops the stack")
    say("next steps:")
    say("  matrixctl up --time-scale 60          your own stack; then export KUBECONFIG=$(matrixctl kubeconfig)")
    say("  kubectl apply -f examples/deepseek-r1.yaml; kubectl get cmi -w")
    say("  matrixctl fault inject link-silent sn0-c03-n2/ub-p3-k11    break a link that still reports up")
    say("  matrixctl experiment run --generate 2000                   serve generated traffic in virtual time")
    say("  matrixctl demo failover, matrixctl demo autoscale          both demos (docs/tutorials/autoscaling.md)")
    return 0

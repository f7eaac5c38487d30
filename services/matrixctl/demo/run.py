"""`matrixctl demo`: start a stack, run a demo on it, and stop the stack."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from matrixcommon.model.errors import MatrixError, NotFound
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.console_link import console_link
from services.matrixctl.clients.kubernetes import stack_cluster
from services.matrixctl.demo.autoscale import AUTOSCALE
from services.matrixctl.demo.failover import FAILOVER
from services.matrixctl.demo.shared_steps import Demo
from services.matrixctl.demo.step_runner import Outcome, run_steps
from services.matrixctl.output.screen import EXIT_REFUSED, echo, one_line
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import show_progress, start_supervisor, stop_stack

DEMOS: dict[str, Demo] = {demo.name: demo for demo in (FAILOVER, AUTOSCALE)}

READY_TIMEOUT_WALL_S = 120.0
TIMEOUT_WALL_S = 60.0
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


def run_demo(demo: Demo, state: Path, keep: bool) -> int:
    """Run the demo; returns 0 only if every step succeeded. A stack left by an earlier demo is stopped first."""
    folder = StateFolder(state)
    began = time.monotonic()
    stop_stack(folder)
    try:
        echo(f"[bold cyan]0/{len(demo.steps)} Start the control plane, 48 emulated nodes and a Kubernetes API[/]")
        supervisor = start_supervisor(folder, StackRequest(scale=demo.time_scale).to_json())
        show_progress(folder, supervisor, READY_TIMEOUT_WALL_S)
        took = time.monotonic() - began
        echo(f"   [dim]{took:.1f} s; an emulated minute takes {60 / demo.time_scale:g} s here[/]")
        outcome = run_on_stack(folder, demo)
    except MatrixError as refused:
        outcome = Outcome(failed="start", seen=one_line(refused))
    finally:
        if not keep:
            stop_stack(folder)
    return print_summary(outcome, folder, keep, time.monotonic() - began)


def run_on_stack(folder: StateFolder, demo: Demo) -> Outcome:
    """Run the demo on a stack that is ready. Requests to a service that is briefly down are retried."""
    client, cluster = ApiClient.of(folder), stack_cluster(folder)
    client.deadline_wall_s = client.timeout_wall_s = cluster.timeout_wall_s = TIMEOUT_WALL_S
    run = demo.begin(client, cluster, example(demo.manifest))
    try:
        return run_steps(demo.steps, run)
    finally:
        run.close()


def print_summary(outcome: Outcome, folder: StateFolder, keep: bool, took_wall_s: float) -> int:
    if not outcome.ok:
        echo(f"\n[bold red]the demo failed at step `{outcome.failed}`[/]: {outcome.seen}")
        echo(f"logs: {folder.logs}; use --keep to leave the stack running for inspection")
        return EXIT_REFUSED
    echo(f"\n[bold green]every step succeeded[/], in {took_wall_s:.0f} s.")
    flag = f"--state {folder.path}"
    if keep:
        echo("[bold]the stack keeps running.[/] Its console, with a login link that is valid once, for a minute:")
        echo(f"  {console_link(ApiClient.of(folder))}")
        echo(f"  matrixctl console {flag}    prints another link; matrixctl down {flag} stops the stack")
    echo("next steps:")
    echo("  matrixctl up --time-scale 60          your own stack; then export KUBECONFIG=$(matrixctl kubeconfig)")
    echo("  kubectl apply -f examples/deepseek-r1.yaml; kubectl get cmi -w")
    echo("  matrixctl fault inject link-silent sn0-c03-n2/ub-p3-k11    break a link that still reports up")
    echo("  matrixctl experiment run --generate 2000                   serve generated traffic in virtual time")
    echo("  matrixctl demo failover, matrixctl demo autoscale          both demos (docs/tutorials/autoscaling.md)")
    return 0

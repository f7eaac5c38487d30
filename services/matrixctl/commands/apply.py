"""apply and fault: specs, and emulated misfortune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName, NpuName, SwitchName
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OnStack, Output, printed
from services.matrixctl.output.resource_kinds import listing
from services.matrixctl.output.screen import Form, say

group("fault", "Break the emulated hardware, or repair it. The control plane has to find out by itself.")


@command("apply")
def apply(
    stack: OnStack,
    file: Annotated[Path, typer.Option("--filename", "-f", help="Manifest, YAML or JSON; several documents are fine.")],
) -> None:
    """Apply Kubernetes manifests to the embedded API, as `kubectl apply --server-side` would."""
    from services.matrixctl.clients.kubernetes import cluster_of

    if not file.exists():
        raise InvalidField(f"there is no file {file}", field="--filename")
    for line in cluster_of(stack.client.folder).apply(file):
        say(line)


@command("fault inject")
def fault_inject(
    stack: OnStack,
    kind: Annotated[str, typer.Argument(help="node-down, agent-hang, npu-fault, missing-part, link-down, ...")],
    target: Annotated[str, typer.Argument(help="A node, NPU (sn0-c03-n2-npu5), port (sn0-c03-n2/vpc) or switch.")],
    name: Annotated[str | None, typer.Option(help="Name of the fault (default: kind and target).")] = None,
    parameter: Annotated[list[str] | None, typer.Option("--parameter", "-p", help="key=value, kind by kind.")] = None,
) -> None:
    """Make something fail."""
    from matrixresource.agent.hardware import FAULT_KINDS

    if kind not in FAULT_KINDS:
        known = "; ".join(f"{each}: {means}" for each, means in FAULT_KINDS.items())
        raise InvalidField(f"there is no fault {kind!r}; there are {known}", field="--kind")
    node, parameters = fault_target(target)
    for pair in parameter or []:
        key, found, value = pair.partition("=")
        if not found:
            raise InvalidField(f"{pair!r} is not key=value", field="--parameter")
        parameters[key] = _value(value)
    chosen = name or f"{kind}-{target}".lower().replace("/", "-")
    body = {"kind": kind, "target": node, "parameters": parameters}
    stack.client.call("agents", "PUT", f"/v1/faults/{chosen}", body=body)
    say(f"fault {chosen} injected; `matrixctl fault clear {chosen}` repairs it")


def fault_target(text: str) -> tuple[str, dict[str, Any]]:
    """A node or switch, and the parameters that `sn0-c03-n2-npu5` or `sn0-c03-n2/ub-p3-k11` imply. Raises
    InvalidField."""
    node, found, port = text.partition("/")
    if found:
        return NodeName(node), {"port": port}
    if SwitchName.pattern.fullmatch(text):
        return SwitchName(text), {}
    if "-npu" in text:
        npu = NpuName(text)
        return npu.node, {"npu": npu.part("npu")}
    return NodeName(text), {}


def _value(text: str) -> Any:
    """A parameter as the number or word it looks like."""
    for reading in (int, float):
        try:
            return reading(text)
        except ValueError:
            continue
    return text


@command("fault list")
def fault_list(stack: OnStack, output: Output = Form.TABLE) -> None:
    """Faults that are injected now."""
    items = stack.client.list("agents", "/v1/faults")
    if not printed({"items": items}, output):
        listing("name, kind, target", items)


@command("fault clear")
def fault_clear(
    stack: OnStack,
    name: Annotated[str | None, typer.Argument(help="Which one.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Every one.")] = False,
) -> None:
    """Repair what was broken."""
    if (name is None) == (not all):
        raise InvalidField("give either a name or --all", field="--all")
    names = [name] if name else [item["name"] for item in stack.client.list("agents", "/v1/faults")]
    for each in names:
        stack.client.call("agents", "DELETE", f"/v1/faults/{each}")
        say(f"fault {each} cleared")
    if not names:
        say("no faults")

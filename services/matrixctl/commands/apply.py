"""apply, put, delete, convert and fault: change resources, and inject faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField, MethodNotAllowed, Unavailable
from matrixcommon.model.hardware_names import CabinetName, NodeName, NpuName, SwitchName
from services.matrixctl.clients.collections import find_services
from services.matrixctl.clients.input_files import read_manifests, read_mapping
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help import completion
from services.matrixctl.commands.options import Output, ProjectOptions, StackOptions, print_for_programs
from services.matrixctl.commands.put_request import request_from_view
from services.matrixctl.commands.reading.get import get, show
from services.matrixctl.commands.workloads.instances import warn_of_owner
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.resource_kinds import find_kind, unknown_word
from services.matrixctl.output.screen import NotRunning, OutputFormat, echo, echo_deleted

if TYPE_CHECKING:
    from services.matrixctl.clients.kubernetes import Cluster

group("fault", "Break the emulated hardware, or repair it. The control plane has to detect it by itself.")


@command("apply")
def apply(
    stack: StackOptions,
    file: Annotated[
        Path,
        typer.Option(
            "--filename", "-f", help="Manifest, YAML or JSON, with any number of documents; `-` for standard input."
        ),
    ],
) -> None:
    """Apply Kubernetes manifests to the embedded API, like `kubectl apply --server-side`."""
    documents = read_manifests(file)
    for line in _cluster(stack).apply_all(documents):
        echo(line)


@command("put")
def put(
    stack: ProjectOptions,
    noun: Annotated[
        str,
        typer.Argument(
            help="A kind as for `get`; the service refuses kinds that cannot be put.",
            autocompletion=completion.complete_kinds,
        ),
    ],
    name: Annotated[str, typer.Argument(help="Name of the resource.", autocompletion=completion.complete_resources)],
    file: Annotated[
        Path, typer.Option("--filename", "-f", help="The resource's fields, YAML or JSON; `-` for standard input.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the result, without changing anything.")
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create or replace a resource of a service from a file; `explain NOUN` lists the fields that may be set. You can
    edit the output of `get NOUN NAME -o yaml` and put it, as long as nobody else has changed the resource since."""
    kind = find_kind(noun)
    fields = read_mapping(file)
    etag = fields.get("etag")
    path = resource_path(kind.path.removeprefix("/v1/"), name)
    try:
        view = stack.client.call(
            kind.service,
            "PUT",
            path,
            body=request_from_view(kind, fields, lambda part: stack.client.get(kind.service, path + part) or {}),
            params={"validateOnly": "true"} if dry_run else None,
            if_match=str(etag) if etag else None,
        )
    except MethodNotAllowed as wrong:
        raise InvalidField(f"{kind.name} cannot be put: {wrong.message}", field="NOUN") from wrong
    show(kind, [view], output, single=True)


@command("delete")
def delete(
    stack: ProjectOptions,
    noun: Annotated[
        str | None,
        typer.Argument(
            help="A kind as for `get`; the service refuses kinds that cannot be deleted.",
            autocompletion=completion.complete_kinds,
        ),
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(help="Names.", autocompletion=completion.complete_resources)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--filename", "-f", help="Delete what this manifest names; `-` for standard input.")
    ] = None,
) -> None:
    """Delete resources of a service, or what a manifest applied. A resource with an owner is recreated: delete the
    owner instead, such as the CloudMatrixInstance of an instance."""
    if (noun is None) == (file is None):
        raise InvalidField("give either a noun and names, or a file", field="NOUN, --filename")
    if file is not None:
        documents = read_manifests(file)
        for line in _cluster(stack).delete_all(documents):
            echo(line)
        return
    kind = find_kind(noun or "")
    if not names:
        raise InvalidField(f"name which {kind.name} to delete", field="NAMES")
    for name in names:
        path = resource_path(kind.path.removeprefix("/v1/"), name)
        try:
            for service in find_services(stack.client, kind, name):
                view = stack.client.call(service, "DELETE", path)
        except MethodNotAllowed as wrong:
            raise InvalidField(f"{kind.name} cannot be deleted: {wrong.message}", field="NOUN") from wrong
        echo_deleted(name, view)
        if kind.name == "instances":
            warn_of_owner(view, "recreates it; delete that instead", "delete")


@command("convert")
def convert(
    file: Annotated[Path, typer.Option("--filename", "-f", help="Manifest for Volcano, MindCluster or CCE, or `-`.")],
    chips_per_node: Annotated[
        int | None,
        typer.Option(help="Chips per node in the manifest, 16 or 8 (default: as the manifest says, or 16)."),
    ] = None,
    output: Output = OutputFormat.YAML,
) -> None:
    """Convert a manifest written for Volcano, MindCluster or CCE, and list on standard error what was translated and
    what was dropped. Needs no stack; `-o table` prints only that list, to standard output."""
    from matrixcontainer.conversion.manifests import convert as converted

    objects, accounts = converted(read_manifests(file), chips_per_node)
    account = "".join(f"# {e.object}: {e.field}: {e.outcome}: {e.message}\n" for e in accounts)
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        print(account, end="")
        return
    print(account, end="", file=sys.stderr)
    if output is OutputFormat.YAML:
        print(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True), end="")
    elif output is OutputFormat.NAME:
        print("".join(f"{each['kind']}/{each['metadata']['name']}\n" for each in objects), end="")
    else:
        print_for_programs({"apiVersion": "v1", "kind": "List", "items": objects}, output)


def _cluster(stack: StackOptions) -> Cluster:
    from services.matrixctl.clients.kubernetes import stack_cluster

    return stack_cluster(stack.client.folder)


@command("fault inject")
def fault_inject(
    stack: StackOptions,
    kind: Annotated[str, typer.Argument(help="A kind listed by `fault kinds`.", autocompletion=completion.fault_kinds)],
    target: Annotated[
        str,
        typer.Argument(
            help="A node, its NPU (sn0-c03-n2-npu5) or port (sn0-c03-n2/vpc), a cabinet, a switch.",
            autocompletion=completion.names_of("nodes"),
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the fault (default: made from kind and target).")] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="key=value, depending on the kind.")
    ] = None,
) -> None:
    """Inject a fault into the emulated hardware."""
    from matrixresource.agent.fault_catalogue import FAULT_KINDS

    if kind not in FAULT_KINDS:
        raise unknown_word(kind, "KIND", FAULT_KINDS)
    node, parameters = fault_target(target)
    for pair in parameter or []:
        key, found, value = pair.partition("=")
        if not found:
            raise InvalidField(f"{pair!r} is not key=value", field="--parameter")
        parameters[key] = _value(value)
    chosen = name or f"{kind}-{target}".lower().replace("/", "-")
    body = {"kind": kind, "target": node, "parameters": parameters}
    made = stack.client.call("agents", "PUT", resource_path("faults", chosen), body=body)["name"]
    echo(f"fault {made} injected; clear it with `matrixctl fault clear {made}`")


def fault_target(text: str) -> tuple[str, dict[str, Any]]:
    """Parse a target into its node, switch or cabinet and the parameters implied by `sn0-c03-n2-npu5` or
    `sn0-c03-n2/ub-p3-k11`. Raises InvalidField."""
    node, found, port = text.partition("/")
    if NodeName.pattern.fullmatch(node):
        return NodeName(node), {"port": port} if found else {}
    if SwitchName.pattern.fullmatch(text):
        return SwitchName(text), {}
    if CabinetName.pattern.fullmatch(text):
        return CabinetName(text), {}
    if NpuName.pattern.fullmatch(text):
        npu = NpuName(text)
        return npu.node, {"npu": npu.part("npu")}
    examples = ", ".join(each.example for each in (NodeName, NpuName, CabinetName, SwitchName))
    raise InvalidField(
        f"{text[:80]!r} is not a target; use a name like {examples}, or {NodeName.example}/vpc", field="TARGET"
    )


def _value(text: str) -> Any:
    """A parameter's value: a number if it looks like one, else text."""
    from matrixcompute.scenarios.fault_injections import parse_parameter

    return parse_parameter(text)


@command("fault kinds")
def fault_kinds(output: Output = OutputFormat.TABLE) -> None:
    """List the kinds of faults and their parameters. Faults of services can be injected only by a scenario."""
    from matrixresource.agent.fault_catalogue import CATALOGUE

    items = [
        {
            "name": kind,
            "strikes": each.scope,
            "means": each.description,
            "parameters": each.parameters,
            "level": each.level,
            "foundBy": each.detected_by,
        }
        for kind, each in CATALOGUE.items()
    ]
    if not print_for_programs({"items": items}, output):
        print_table("kind:name, strikes, what happens:means, level, found by:foundBy", items)


@command("fault list")
def fault_list(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """List the faults injected now. `get faults` lists those that the control plane has detected."""
    get(ProjectOptions(stack.state), "injected-faults", output=output)


@command("fault clear")
def fault_clear(
    stack: StackOptions,
    name: Annotated[
        str | None, typer.Argument(help="Name of the fault.", autocompletion=completion.names_of("injected-faults"))
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Clear all.")] = False,
) -> None:
    """Clear a fault, or all of them. A fault declared by a MatrixFault is injected again, and named: delete that
    resource instead."""
    if (name is None) == (not all):
        raise InvalidField("give either a name or --all", field="--all")
    names = [item["name"] for item in stack.client.list("agents", "/v1/faults")] if name is None else [name]
    declared = _declared_faults(stack) if names else set()
    for each in names:
        stack.client.call("agents", "DELETE", resource_path("faults", each))
        echo(f"fault {each} cleared")
    for each in names:
        if each in declared:
            command = f"kubectl delete matrixfault {each}"
            print(f"its MatrixFault injects fault {each} again; delete that instead: {command}", file=sys.stderr)
    if not names:
        echo("no faults")


def _declared_faults(stack: StackOptions) -> set[str]:
    """Names of the faults that MatrixFaults inject."""
    from matrixcontainer.client.client import FAULT

    try:
        resources = [item["metadata"] for item in _cluster(stack).items(FAULT.path())]
    except NotRunning:  # a part of a stack, without Kubernetes
        return set()
    except Unavailable as wrong:
        print(f"a fault declared by a MatrixFault is injected again; there is no telling: {wrong}", file=sys.stderr)
        return set()
    return {resource["name"] for resource in resources if "deletionTimestamp" not in resource}

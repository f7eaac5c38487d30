"""topology: query a supernode's graph with NetworkX, export it, and check a drawn one. Also the machines that a stack
can be started as."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import Output, StackOptions, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import EXIT_REFUSED, OutputFormat, echo

if TYPE_CHECKING:
    import networkx as nx

group("topology", "Query a supernode's graph: paths, neighbours, cuts, bisection; export it, or check a drawn one.")

Part = Annotated[str, typer.Argument(help="A die, NPU, node, cabinet or switch (sn0-c03-n2, sn0-l2p3-k11, ...).")]


@dataclass
class OfGraph(StackOptions):
    """Which graph to query, and the output format."""

    file: Annotated[Path | None, typer.Option("--file", help="Query a drawing instead of the running stack.")] = None
    output: Output = OutputFormat.TABLE

    def graph(self, part: str) -> nx.MultiGraph:
        """The graph of the file, or of the part's supernode in the stack as it is now."""
        from matrixresource.topology.graph_document import (
            compile_drawing,
            drawing_graph,
            read_drawing,
            read_drawing_file,
        )
        from matrixresource.topology.loading import load_spec

        if self.file is not None:
            drawing = read_drawing_file(self.file)
            compile_drawing(drawing, load_spec())
            return drawing_graph(drawing)
        return drawing_graph(read_drawing(_model(self, part.partition("-")[0], "node-link").json()))


@dataclass
class OnPlane(OfGraph):
    """The same, restricted to one plane."""

    plane: Annotated[str | None, typer.Option(help="Use only this plane: ub, rdma or vpc.")] = None


def _queries() -> ModuleType:
    """Imported late: NetworkX is slow to load, and most commands do not need it."""
    from matrixresource.topology import graph_queries

    return graph_queries


def _model(stack: StackOptions, supernode: str, form: str) -> Any:
    params = {"level": "model", "format": form}
    return stack.client.fetch("resource", resource_path("supernodes", supernode, "/topology"), params)


@command("topology path")
def path(of: OnPlane, a: Part, b: Part) -> None:
    """Show the shortest path from one part to another.

    matrixctl topology path sn0-c03-n2 sn0-c07-n1 --plane ub     node to node over UB
    matrixctl topology path sn0-c03-n2-npu5-die1 sn0-l2p3-k11    a die to an L2 switch
    """
    found = _queries().find_path(of.graph(a), a, b, of.plane)
    if print_for_programs(vars(found), of.output):
        return
    for part, link in zip(found.parts, [*found.links, ""], strict=True):
        echo(part + (f"\n  | {link}" if link else ""))
    echo(
        f"{found.ways} paths have this length; the links of this one take {found.latency_us:g} us one way, "
        f"the slowest carries {found.gbps:g} GB/s each way"
    )


@command("topology neighbours")
def neighbours(of: OnPlane, name: Part) -> None:
    """List the parts connected to a part, and the links between them.

    matrixctl topology neighbours sn0-l2p3-k11            the L1 switches below an L2 switch
    matrixctl topology neighbours sn0-c03-n2 --plane rdma what a node's parts connect to
    """
    found = _queries().find_neighbours(of.graph(name), name, of.plane)
    if print_for_programs({"items": [vars(each) for each in found]}, of.output):
        return
    print_table("name, kind, plane, GB/s:gbps, link", [vars(each) | {"link": _first(each.links)} for each in found])


@command("topology cut")
def cut(of: OnPlane, a: Part, b: Part) -> None:
    """Show the maximum flow between two parts, and a minimum set of links whose loss disconnects them.

    matrixctl topology cut sn0-c03-n2 sn0-c07-n1 --plane ub
    """
    _show_cut(_queries().find_cut(of.graph(a), a, b, of.plane), f"from {a} to {b}", of.output)


@command("topology bisection")
def bisection(
    of: OfGraph,
    supernode: Annotated[str, typer.Argument(help="sn0, sn1 and so on.")] = "sn0",
    plane: Annotated[str, typer.Option(help="ub, rdma or vpc.")] = "ub",
) -> None:
    """Show the maximum that half of a supernode's nodes can send to the other half.

    matrixctl topology bisection                            of sn0, over UB
    matrixctl topology bisection sn1 --plane rdma -o json
    """
    found = _queries().find_bisection(of.graph(supernode), plane)
    _show_cut(found, f"from one half of {supernode} to the other", of.output)


def _show_cut(found: Any, where: str, output: OutputFormat) -> None:
    if print_for_programs(vars(found), output):
        return
    echo(f"{found.gbps:g} GB/s each way {where}, over {pluralized(len(found.links), 'link')}: {_first(found.links)}")


def _first(links: list[str]) -> str:
    return ", ".join(links[:3]) + (f" and {len(links) - 3} more" if len(links) > 3 else "")


@command("topology export")
def export(
    stack: StackOptions,
    supernode: Annotated[str, typer.Argument(help="sn0, sn1 and so on.")] = "sn0",
    form: Annotated[str, typer.Option("--format", help="json (node-link) or graphml.")] = "json",
) -> None:
    """Print a supernode's current graph, for a graph editor or for `supernode add --file`.

    matrixctl topology export sn0 > sn0.json
    matrixctl topology export sn0 --format graphml > sn0.graphml    for yEd or Gephi
    """
    if form not in ("json", "graphml"):
        raise InvalidField(f"{form!r} is not a format; use json or graphml", field="--format")
    answer = _model(stack, supernode, "graphml" if form == "graphml" else "node-link")
    typer.echo(answer.text if form == "graphml" else json.dumps(answer.json()["graph"]))


@command("topology check")
def check(
    file: Annotated[Path, typer.Argument(help="Node-link JSON or GraphML.")], output: Output = OutputFormat.TABLE
) -> None:
    """Check a drawn supernode; print a sentence for each fault. Exit code 1 if there is any.

    matrixctl topology check drawn.json
    matrixctl topology check drawn.graphml -o json
    """
    from matrixresource.topology.graph_checks import find_faults
    from matrixresource.topology.graph_document import compile_drawing, read_drawing_file
    from matrixresource.topology.loading import load_spec

    drawing, spec = read_drawing_file(file), load_spec()
    found = find_faults(drawing, spec)
    compiled = None if found else compile_drawing(drawing, spec)
    wired = [] if compiled is None else compiled.document()["drawn"]
    answer = {"faults": [{"where": each.where, "sentence": each.sentence} for each in found], "deviations": wired}
    if print_for_programs(answer, output):
        pass
    elif compiled is None:
        for each in found:
            echo(each.sentence)
    else:
        others = f"{pluralized(len(wired), 'part')} deviating from the regular wiring" if wired else "regular wiring"
        nodes, links = pluralized(len(compiled.nodes), "node"), pluralized(len(compiled.link_named), "link")
        echo(f"{file} can be imported: {nodes}, {links}, {others}")
    if found:
        raise typer.Exit(EXIT_REFUSED)


@command("topology list")
def machines(output: Output = OutputFormat.TABLE) -> None:
    """List the built-in machines that a stack can be started as: `matrixctl up --topology NAME`."""
    from matrixresource.machines import built_in_specs
    from matrixresource.topology.loading import load_spec

    found = []
    for name in built_in_specs():
        spec = load_spec(name)
        total, marks = spec.supernode, [figure.mark for figure in spec.figures]
        found.append(
            {
                "name": name,
                "model": spec.model,
                "npus": total.npus,
                "nodes": total.nodes,
                "cabinets": total.compute_cabinets,
                "ubGbpsPerNpu": spec.npu.ub_gbps,
                "rdmaGbpsPerNpu": spec.npu.rdma_gbps,
                "assumed": f"{marks.count('ASSUMED')} of {len(marks)} figures",
            }
        )
    if not print_for_programs({"items": found}, output):
        columns = "name, model, NPUs:npus, nodes, cabinets, UB GB/s:ubGbpsPerNpu, RDMA GB/s:rdmaGbpsPerNpu, assumed"
        print_table(columns, found)


@command("topology show")
def machine(
    name: Annotated[str, typer.Argument(help="A machine of `matrixctl topology list`, or a machine file (YAML).")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show every figure of a machine, with its source and how certain it is.

    matrixctl topology show atlas-950
    matrixctl topology show mine.yaml -o json
    """
    from matrixresource.topology.loading import load_spec

    found = [
        {"figure": each.path, "value": each.value, "mark": each.mark, "sources": list(each.sources), "note": each.note}
        for each in load_spec(name).figures
    ]
    if not print_for_programs({"items": found}, output):
        print_table("figure, value, mark, note", found)

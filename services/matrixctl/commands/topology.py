"""topology: the graph of a supernode, and questions that NetworkX answers about it; or a drawn file, checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from matrixresource.topology.loading import load_spec
from services.matrixctl.commands.options import DEFAULT_STATE, Output, State, printed, reach
from services.matrixctl.output.screen import EXIT_REFUSED, Form, say, table

if TYPE_CHECKING:
    import networkx as nx

topology_app = typer.Typer(
    help="Ask the graph of a supernode: ways, neighbours, cuts, its bisection; print it, or check a drawn one.",
    no_args_is_help=True,
)

Part = Annotated[str, typer.Argument(help="A die, NPU, node, cabinet or switch (sn0-c03-n2, sn0-l2p3-k11 ...).")]
Plane = Annotated[str | None, typer.Option(help="Over this plane only: ub, rdma or vpc.")]
File = Annotated[Path | None, typer.Option("--file", help="Ask a drawn file instead of the running stack.")]


def _graph(state: Path, part: str, file: Path | None) -> nx.MultiGraph:
    """The graph that a part is in: of the file, or as the stack has it now."""
    from matrixresource.topology.graph_document import compiled_drawing, graph_of, read, read_file

    if file is not None:
        drawing = read_file(file)
        compiled_drawing(drawing, load_spec())
        return graph_of(drawing)
    return graph_of(read(_model(state, part.partition("-")[0], "node-link").json()))


def _model(state: Path, supernode: str, form: str) -> Any:
    params = {"level": "model", "format": form}
    return reach(state).fetch("resource", f"/v1/supernodes/{supernode}/topology", params)


@topology_app.command("path")
def path(
    a: Part, b: Part, plane: Plane = None, file: File = None, output: Output = Form.TABLE, state: State = DEFAULT_STATE
) -> None:
    """The shortest way from one part to another.

    matrixctl topology path sn0-c03-n2 sn0-c07-n1 --plane ub     node to node over UB
    matrixctl topology path sn0-c03-n2-npu5-die1 sn0-l2p3-k11    a die to an L2 switch
    """
    from matrixresource.topology import graph_queries

    found = graph_queries.path(_graph(state, a, file), a, b, plane)
    if printed(vars(found), output):
        return
    for part, link in zip(found.parts, [*found.links, ""], strict=True):
        say(part + (f"\n  | {link}" if link else ""))
    say(
        f"{found.ways} ways are as short; the links of this one take {found.latency_us:g} us one way, "
        f"the slowest carries {found.gbps:g} GB/s each way"
    )


@topology_app.command("neighbours")
def neighbours(
    name: Part, plane: Plane = None, file: File = None, output: Output = Form.TABLE, state: State = DEFAULT_STATE
) -> None:
    """What a part is joined to, by which links.

    matrixctl topology neighbours sn0-l2p3-k11            the L1 switches that an L2 switch serves
    matrixctl topology neighbours sn0-c03-n2 --plane rdma what a node's parts lead to
    """
    from matrixresource.topology import graph_queries

    found = graph_queries.neighbours(_graph(state, name, file), name, plane)
    if printed({"items": [vars(each) for each in found]}, output):
        return
    rows = [[each.name, each.kind, each.plane, f"{each.gbps:g}", _first(each.links)] for each in found]
    table(["name", "kind", "plane", "GB/s", "link"], rows)


@topology_app.command("cut")
def cut(
    a: Part, b: Part, plane: Plane = None, file: File = None, output: Output = Form.TABLE, state: State = DEFAULT_STATE
) -> None:
    """What flows at the most between two parts, and the least set of links without which nothing does.

    matrixctl topology cut sn0-c03-n2 sn0-c07-n1 --plane ub
    """
    from matrixresource.topology import graph_queries

    _show_cut(graph_queries.cut(_graph(state, a, file), a, b, plane), f"from {a} to {b}", output)


@topology_app.command("bisection")
def bisection(
    supernode: Annotated[str, typer.Argument(help="sn0, sn1 and so on.")] = "sn0",
    plane: Annotated[str, typer.Option(help="ub, rdma or vpc.")] = "ub",
    file: File = None,
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """What half of a supernode's nodes can send to the other half at the most.

    matrixctl topology bisection                            of sn0, over UB
    matrixctl topology bisection sn1 --plane rdma -o json
    """
    from matrixresource.topology import graph_queries

    found = graph_queries.bisection(_graph(state, supernode, file), plane)
    _show_cut(found, f"from one half of {supernode} to the other", output)


def _show_cut(found: Any, where: str, output: Form) -> None:
    if printed(vars(found), output):
        return
    say(f"{found.gbps:g} GB/s each way {where}, over {len(found.links)} links: {_first(found.links)}")


def _first(links: list[str]) -> str:
    return ", ".join(links[:3]) + (f" and {len(links) - 3} more" if len(links) > 3 else "")


@topology_app.command("export")
def export(
    supernode: Annotated[str, typer.Argument(help="sn0, sn1 and so on.")] = "sn0",
    form: Annotated[str, typer.Option("--format", help="json (node-link) or graphml.")] = "json",
    state: State = DEFAULT_STATE,
) -> None:
    """Print a supernode's graph as it is now, for a drawing program or to be given back.

    matrixctl topology export sn0 > sn0.json
    matrixctl topology export sn0 --format graphml > sn0.graphml    for yEd or Gephi
    """
    if form not in ("json", "graphml"):
        raise InvalidField(f"{form!r} is no format; use json or graphml", field="--format")
    answer = _model(state, supernode, "graphml" if form == "graphml" else "node-link")
    typer.echo(answer.text if form == "graphml" else json.dumps(answer.json()["graph"]))


@topology_app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="Node-link JSON or GraphML.")], output: Output = Form.TABLE
) -> None:
    """Say what is wrong with a drawn supernode, a sentence for each fault. Exit code 1 where there is any.

    matrixctl topology check drawn.json
    matrixctl topology check drawn.graphml -o json
    """
    from matrixresource.topology.graph_checks import faults
    from matrixresource.topology.graph_document import compiled_drawing, read_file

    drawing, spec = read_file(file), load_spec()
    found = faults(drawing, spec)
    compiled = None if found else compiled_drawing(drawing, spec)
    wired = [] if compiled is None else compiled.document()["drawn"]
    answer = {"faults": [{"where": each.where, "sentence": each.sentence} for each in found], "deviations": wired}
    if printed(answer, output):
        pass
    elif compiled is None:
        for each in found:
            say(each.sentence)
    else:
        others = f"{len(wired)} parts otherwise than regular" if wired else "wired as its numbers say"
        say(f"{file} can be taken up: {len(compiled.nodes)} nodes, {len(compiled.link_named)} links, {others}")
    if found:
        raise typer.Exit(EXIT_REFUSED)


def register(app: typer.Typer) -> None:
    app.add_typer(topology_app, name="topology")

"""top: how full the machine is."""

from __future__ import annotations

import typer

from services.matrixctl.commands.options import DEFAULT_STATE, Output, State
from services.matrixctl.screen import Form, document, say, table

top_app = typer.Typer(help="How full the machine is.", no_args_is_help=True)


@top_app.command("capacity")
def top_capacity(output: Output = Form.TABLE, state: State = DEFAULT_STATE) -> None:
    """What is free and held in each cabinet, and the largest blocks there are."""
    from services.matrixctl.folder import Folder
    from services.matrixctl.reach import Reach

    view = Reach.of(Folder(state)).call("resource", "GET", "/v1/capacity")
    if output in (Form.JSON, Form.YAML):
        document(view, output)
        return
    largest, scattered = view["largestBlock"], view["fragmentation"]
    say(
        f"{view['nodesFree']} of {view['nodes']} nodes free ({view['npusFree']:g} NPUs), "
        f"{view['utilisation']:.0%} of the NPUs in use, {view['spares']} spares"
    )
    say(
        f"largest block: {largest['cabinet']} nodes in a cabinet, {largest['supernode']} in a supernode; "
        f"fragmentation {scattered['cabinet']:.0%} and {scattered['supernode']:.0%}"
    )
    columns = ["nodes", "up", "free", "held", "spares", "kept"]
    rows = [
        [
            domain["domain"],
            domain["state"],
            *(domain[each] for each in columns),
            f"{domain['utilisation']:.0%}",
            domain["largestBlock"],
        ]
        for domain in [*view["cabinets"], *(view["supernodes"] if output is Form.WIDE else [])]
    ]
    table(["domain", "state", *columns, "used", "largest block"], rows)


def register(app: typer.Typer) -> None:
    app.add_typer(top_app, name="top")

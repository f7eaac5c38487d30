"""plan: would a request fit; if not, why not and what would help."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.matrixctl.commands.options import DEFAULT_STATE, Output, State
from services.matrixctl.screen import EXIT_REFUSED, Form, document, say, table


def plan(
    nodes: Annotated[int | None, typer.Option(min=1, help="Whole nodes, eight NPUs each.")] = None,
    npus: Annotated[int | None, typer.Option(min=1, help="NPUs instead, in multiples of eight.")] = None,
    spares: Annotated[int, typer.Option(min=0, help="Nodes held beside them for repair.")] = 0,
    policy: Annotated[str, typer.Option(help="pack or spread")] = "pack",
    level: Annotated[str, typer.Option(help="cabinet or supernode")] = "cabinet",
    required: Annotated[bool, typer.Option("--required", help="Refuse rather than compromise.")] = False,
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """Would it fit? Where, and what a loss would take; if not, why not and what would help. Nothing is created.

    Exits with 1 when it does not fit.
    """
    from services.matrixctl.folder import Folder
    from services.matrixctl.reach import Reach

    body: dict[str, Any] = {"spares": spares, "placement": {"policy": policy, "level": level, "required": required}}
    body |= {"nodes": nodes} if nodes is not None else {}
    body |= {"npus": npus} if npus is not None else {}
    answer = Reach.of(Folder(state)).call("resource", "POST", "/v1/plans", body=body)
    if output in (Form.JSON, Form.YAML):
        document(answer, output)
    else:
        _print(answer)
    if not answer["fits"]:
        raise typer.Exit(EXIT_REFUSED)


def _print(answer: dict[str, Any]) -> None:
    if answer["fits"]:
        cabinets = sorted({name.rpartition("-")[0] for name in answer["members"]})
        spares = f", spares {', '.join(answer['spareNodes'])}" if answer["spareNodes"] else ""
        say(f"[green]fits[/]: {len(answer['members'])} nodes in {', '.join(cabinets)}{spares}")
        radius = answer["blastRadius"]
        say("at the most lost with one " + ", ".join(f"{domain}: {count}" for domain, count in radius.items()))
        return
    say(f"[red]does not fit[/]: {answer['message']}")
    table(
        ("cabinet", "free", "nodes", "in the way"),
        [
            (one["cabinet"], one["free"], one["nodes"], ", ".join(f"{n} {why}" for why, n in one["reasons"].items()))
            for one in answer["blocking"]
        ],
    )
    for change in answer["changes"]:
        say(f"- {change['message']}")
    if not answer["changes"]:
        say("nothing that is held or asked stands in the way alone; there are not so many working nodes")


def register(app: typer.Typer) -> None:
    app.command()(plan)

"""defrag: room made by moving others, as a plan that is looked at first."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.options import DEFAULT_STATE, Output, State, printed, reach
from services.matrixctl.output.screen import EXIT_REFUSED, Form, console, say, table

ASK_AGAIN_WALL_S = 0.5
OVER = ("Done", "Cancelled", "Failed", "Stale")
PATH = "/v1/defragmentations"

defrag_app = typer.Typer(
    help="Make room for a block by moving others, member by member. Nothing moves before the plan is approved.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The plan's name.")]
Wait = Annotated[bool, typer.Option("--wait", help="Until it is over; exit code 1 unless it went as requested.")]


@defrag_app.command("plan")
def plan(
    nodes: Annotated[int, typer.Option(min=1, help="Whole nodes of the block, eight NPUs each.")],
    level: Annotated[str, typer.Option(help="The domain it lies in: cabinet or supernode.")] = "cabinet",
    name: Annotated[str | None, typer.Option(help="What to call the plan (default: a made-up name).")] = None,
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """Say which members would have to move, and how large the block is before and after."""
    body = {"nodes": nodes, "level": level} | ({"name": name} if name else {})
    _show(reach(state).call("resource", "POST", PATH, body=body), output)


@defrag_app.command("approve")
def approve(name: Name, wait: Wait = False, output: Output = Form.TABLE, state: State = DEFAULT_STATE) -> None:
    """Have a plan carried out."""
    _ask(reach(state), name, "approve", "Done" if wait else "", output)


@defrag_app.command("cancel")
def cancel(name: Name, wait: Wait = False, output: Output = Form.TABLE, state: State = DEFAULT_STATE) -> None:
    """Stop after the move under way; what has moved stays where it is."""
    _ask(reach(state), name, "cancel", "Cancelled" if wait else "", output)


@defrag_app.command("get")
def get(
    name: Annotated[str | None, typer.Argument(help="Only this one, with its moves.")] = None,
    wait: Wait = False,
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """Show plans, how far they are, and what they wait for."""
    from services.matrixctl.output.resource_kinds import noun_of

    client = reach(state)
    if name is not None:
        view = _awaited(client, name) if wait else client.call("resource", "GET", f"{PATH}/{name}")
        _show(view, output)
        if wait and view["state"] != "Done":
            raise typer.Exit(EXIT_REFUSED)
        return
    if wait:
        raise InvalidField("say which one to wait for", field="--wait")
    plans = client.list("resource", PATH)
    if not printed({"items": plans}, output):
        noun = noun_of("defragmentations")
        wide = output is Form.WIDE
        table(noun.titles(wide), [noun.row(view, wide) for view in plans])


def _ask(client: Any, name: str, verb: str, wanted: str, output: Form) -> None:
    view = client.call("resource", "POST", f"{PATH}/{name}:{verb}")
    if wanted:
        view = _awaited(client, name)
    _show(view, output)
    if wanted and view["state"] != wanted:
        raise typer.Exit(EXIT_REFUSED)


def _awaited(client: Any, name: str) -> dict[str, Any]:
    """The plan once it is over; what it is at is reported meanwhile, on a terminal as a bar."""
    client.patience_wall_s = 30.0
    with _bar() as show:
        while True:
            view: dict[str, Any] = client.call("resource", "GET", f"{PATH}/{name}")
            show(view)
            if view["state"] in OVER:
                return view
            time.sleep(ASK_AGAIN_WALL_S)


def _bar() -> Any:
    if not sys.stderr.isatty():
        return nullcontext(_line())
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    class Bar(Progress):
        def __enter__(self) -> Any:
            super().__enter__()
            task = self.add_task("", total=None)

            def show(view: dict[str, Any]) -> None:
                self.update(
                    task, completed=view["movesDone"], total=len(view["moves"]), description=view.get("message", "")
                )

            return show

    return Bar(MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), console=console(), transient=True)


def _line() -> Any:
    reported: list[str] = []

    def show(view: dict[str, Any]) -> None:
        text = f"{view['movesDone']} of {len(view['moves'])} moved; {view['message']}"
        if view["state"] not in OVER and reported[-1:] != [text]:
            reported.append(text)
            print(text, file=sys.stderr)

    return show


def _show(view: dict[str, Any], output: Form) -> None:
    if printed(view, output):
        return
    domain = f"in one {view['level']}" if view["level"] else "in all"
    say(
        f"{view['name']} is {view['state']}: {view['movesDone']} of {len(view['moves'])} members moved, "
        f"{view['npusMoved']:g} of {view['npus']:g} NPUs; "
        f"the largest block {domain} goes from {view['blockBefore']} to {view['blockAfter']} nodes"
    )
    say(f"room: {', '.join(view['room'])}")
    table(
        ("allocation", "rank", "from", "to", "npus", "by", "state"),
        [[move[key] for key in ("allocation", "rank", "from", "to", "npus", "by", "state")] for move in view["moves"]],
    )
    if view["message"]:
        say(view["message"])


def register(app: typer.Typer) -> None:
    app.add_typer(defrag_app, name="defrag")

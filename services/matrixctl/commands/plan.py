"""plan: where the instances of a manifest would lie, or what stands in the way; nothing is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from matrixresource.vocabulary.errors import InvalidField, NotFound
from services.matrixctl.commands.options import DEFAULT_STATE, Output, State
from services.matrixctl.screen import Form, document, say, table

KIND = "CloudMatrixInstance"


def plan(
    file: Annotated[Path, typer.Option("--filename", "-f", help="Manifest with one CloudMatrixInstance or several.")],
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """Say where the instances of a manifest would lie, and which members would move, without asking for it."""
    import yaml

    from services.matrixctl.folder import Folder
    from services.matrixctl.reach import Reach

    if not file.exists():
        raise InvalidField(f"there is no file {file}", field="--filename")
    wishes = [each for each in yaml.safe_load_all(file.read_text()) if each and each.get("kind") == KIND]
    if not wishes:
        raise InvalidField(f"there is no {KIND} in {file}", field="--filename")
    reach = Reach.of(Folder(state))
    plans = [_planned(reach, each["metadata"]["name"], dict(each.get("spec") or {})) for each in wishes]
    if output in (Form.JSON, Form.YAML):
        document({"items": plans}, output)
        return
    for each in plans:
        cabinets = len({place["cabinet"] for place in each["places"]})
        say(f"{each['name']}: {len(each['places'])} nodes in {cabinets} cabinets, {each['moves']} of them move")
        table(
            ["rank", "role", "node", "cabinet", "now"],
            [[place[key] for key in ("rank", "role", "node", "cabinet", "now")] for place in each["places"]],
        )


def _planned(reach: Any, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    spec.pop("dryRun", None)
    path = f"/v1/instances/{name}"
    there = reach.call("compute", "PUT", path, body=spec, params={"validateOnly": "true"})
    try:
        here = reach.call("compute", "GET", path)
    except NotFound:
        here = {}
    now = {member["rank"]: member["node"] for member in here.get("members", []) if member["role"] == "member"}
    places = [
        {
            "rank": member.get("rank", ""),
            "role": member["role"],
            "node": member["node"],
            "cabinet": member["cabinet"],
            "now": now.get(member.get("rank"), "") if member["role"] == "member" else "",
        }
        for member in there["members"]
    ]
    moves = sum(bool(place["now"]) and place["now"] != place["node"] for place in places)
    return {"name": name, "places": places, "moves": moves}


def register(app: typer.Typer) -> None:
    app.command()(plan)

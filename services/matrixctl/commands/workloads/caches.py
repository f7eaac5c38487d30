"""cache: contents of a served model's caches, the location of weights, and warming a context cache from another's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import Output, ProjectOptions, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import OutputFormat, echo, file_error_message

group("cache", "Context and model caches of deployments. `describe deployment NAME` shows their memory.")

Deployment = Annotated[str, typer.Argument(help="Name of the deployment.", autocompletion=names_of("deployments"))]

BLOCKS_AT_ONCE = 8_000
"""Blocks per request; the body stays well below 1 MiB."""


@command("cache models")
def cache_models(stack: ProjectOptions, name: Deployment, output: Output = OutputFormat.TABLE) -> None:
    """List the models in the pool, where their weights are, and how long each takes to load onto the dies."""
    view = stack.client.call("infer", "GET", resource_path("deployments", name, "/model-cache"))
    if print_for_programs(view, output):
        return
    echo(
        f"{view['usedGb']:.0f} of {view['memoryGb']:.0f} GB of memory on {view['nodes']} nodes, "
        f"{view['ssdUsedGb']:.0f} of {view['ssdGb']:.0f} GB of SSD"
    )
    print_table("model, served, GB:gb, tier, load s:loadS, switch s:switchS, start s:startS", view["models"])


@command("cache export")
def cache_export(
    stack: ProjectOptions,
    name: Deployment,
    file: Annotated[Path, typer.Argument(help="File to write, as JSON.", dir_okay=False)],
) -> None:
    """Export which blocks a context cache holds and where, without their content."""
    pages = list(_pages(stack, name))
    whole = {
        "model": pages[0]["model"],
        "blockTokens": pages[0]["blockTokens"],
        "blocks": [block for page in pages for block in page["blocks"]],
    }
    file.write_text(json.dumps(whole) + "\n", "utf-8")
    echo(f"wrote {pluralized(len(whole['blocks']), 'block')} of {name} into {file}")


@command("cache warm")
def cache_warm(
    stack: ProjectOptions,
    name: Deployment,
    file: Annotated[Path, typer.Argument(help="A file written by `cache export`.", dir_okay=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be loaded.")] = False,
) -> None:
    """Warm a context cache with the blocks of another, as far as they are on nodes that cache for this deployment."""
    whole = _read(file)
    blocks, sums = whole["blocks"], dict.fromkeys(("taken", "known", "elsewhere", "noRoom"), 0)
    params = {"validateOnly": "true"} if dry_run else {}
    for first in range(0, max(1, len(blocks)), BLOCKS_AT_ONCE):
        body = {**whole, "blocks": blocks[first : first + BLOCKS_AT_ONCE]}
        view = stack.client.call("infer", "POST", resource_path("deployments", name, ":warm"), params=params, body=body)
        sums = {what: count + view[what] for what, count in sums.items()}
    would = "would start" if dry_run else "starts"
    echo(
        f"{name} {would} with {sums['taken']} of {len(blocks)} blocks; {sums['known']} were already there, "
        f"{sums['elsewhere']} are on other nodes, {sums['noRoom']} do not fit"
    )


def _pages(stack: ProjectOptions, name: str) -> Iterator[dict[str, Any]]:
    token: str | None = None
    while True:
        params = {"pageSize": str(BLOCKS_AT_ONCE)} | ({"pageToken": token} if token else {})
        page = stack.client.call("infer", "GET", resource_path("deployments", name, "/context-cache"), params=params)
        yield page
        if (token := page.get("nextPageToken")) is None:
            return


def _read(file: Path) -> dict[str, Any]:
    try:
        whole = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as wrong:
        raise InvalidField(
            f"{file} is not an export of a context cache: {file_error_message(wrong)}", field="FILE"
        ) from wrong
    if not isinstance(whole, dict) or not {"model", "blockTokens", "blocks"} <= whole.keys():
        raise InvalidField(
            f"{file} is not an export of a context cache: it needs model, blockTokens, blocks", field="FILE"
        )
    if not isinstance(whole["blocks"], list):
        raise InvalidField(f"{file}: blocks is not a list", field="FILE")
    return {each: whole[each] for each in ("model", "blockTokens", "blocks")}

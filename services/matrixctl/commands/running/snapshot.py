"""snapshot, restore, reset: save the state of a stack as one file, and load it again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized, timestamp
from services.matrixctl.commands.command import command
from services.matrixctl.commands.options import Output, StackOptions, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import OutputFormat, echo, format_size

if TYPE_CHECKING:
    from services.matrixctl.supervisor.stack_request import StackRequest
    from services.matrixctl.supervisor.state_folder import StateFolder

SHOW = "show"


@command("snapshot")
def snapshot(
    stack: StackOptions,
    what: Annotated[
        str, typer.Argument(metavar="FILE|show", help="File to write; `show FILE` describes an existing one.")
    ],
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The snapshot to show.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Write the state of the stack into one file, or show the contents of such a file.

    The processes of a running stack are stopped meanwhile, for a fraction of a second. The file holds no tokens or keys
    of the stack, but everything that users have written, including Secrets of the Kubernetes API: only its owner may
    read it.
    """
    if what == SHOW:
        if file is None:
            raise InvalidField("name the file to show (to write a file called show, give ./show)", field="FILE")
        _show(file, output)
        return
    if file is not None:
        raise InvalidField(f"give one file; to describe one: matrixctl snapshot show {file}", field="FILE")
    from services.matrixctl.snapshots.snapshot import take_snapshot

    result = take_snapshot(stack.folder, Path(what))
    if print_for_programs(_document(Path(what), result.manifest), output):
        return
    databases = pluralized(len(result.manifest.databases), "database")
    echo(
        f"{what}: {databases}, {format_size(Path(what).expanduser().stat().st_size)}, "
        f"in {result.took_wall_s:.1f} s, {result.stopped_wall_s:.2f} s of them stopped"
    )


def _show(file: Path, output: OutputFormat) -> None:
    from services.snapshots.archive import read_manifest

    document = _document(file, read_manifest(file))
    if print_for_programs(document, output):
        return
    print_table(
        "name, size, schema:revision", [row | {"size": format_size(row["bytes"])} for row in document["databases"]]
    )
    echo(
        f"\ntaken at {document['takenAt']} by version {document['version']}, emulated time "
        f"{document['emulatedTime']}, time scale {document['timeScale']:g}, "
        f"seed {'none' if document['seed'] is None else document['seed']}, of {', '.join(document['processes'])}"
    )


def _document(file: Path, manifest: Any) -> dict[str, Any]:
    """A snapshot as a document for programs; sizes in bytes."""
    databases = [{"name": name, **entry.model_dump()} for name, entry in manifest.databases.items()]
    return {
        "file": str(file),
        "format": manifest.format,
        "version": manifest.version,
        "takenAt": timestamp(manifest.taken_wall_s),
        "emulatedTime": timestamp(manifest.emulated_s),
        "timeScale": manifest.time_scale,
        "seed": manifest.seed,
        "processes": list(manifest.processes),
        "databases": databases,
    }


@command("restore")
def restore(
    stack: StackOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The snapshot to restore.")],
    stopped: Annotated[bool, typer.Option("--stopped", help="Leave the stack stopped.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Keep no snapshot of the replaced state.")] = False,
) -> None:
    """Restore the stack in the state folder from a snapshot, and start it.

    A stack that runs there is stopped first. The replaced state is kept as `replaced.snapshot` in the state folder.
    Tokens, keys and kubeconfig of the folder stay; a new folder creates its own.
    """
    from services.matrixctl.snapshots.snapshot import REPLACED
    from services.matrixctl.snapshots.snapshot import restore as restore_state

    began = time.monotonic()
    before = (stack.folder.path / REPLACED).stat().st_mtime_ns if (stack.folder.path / REPLACED).exists() else 0
    manifest, request = restore_state(stack.folder, file, keep=not discard)
    replaced = stack.folder.path / REPLACED
    if replaced.exists() and replaced.stat().st_mtime_ns != before:
        echo(f"the replaced state is kept in {replaced}")
    if not stopped:
        _start(stack.folder, request)
    echo(f"restored to {timestamp(manifest.emulated_s)} of emulated time, in {time.monotonic() - began:.1f} s")


@command("reset")
def reset(
    stack: StackOptions,
    to: Annotated[Path | None, typer.Option("--to", help="Snapshot to start from; by default, empty.")] = None,
) -> None:
    """Delete the state of the stack and start empty, or from a snapshot, for example between tests.

    Processes, settings, tokens and keys stay as they are; the old state is not kept.
    """
    from services.matrixctl.snapshots import snapshot as snapshots

    began = time.monotonic()
    running = stack.folder.supervisor() is not None
    request = snapshots.reset(stack.folder) if to is None else snapshots.restore(stack.folder, to, keep=False)[1]
    if running:
        _start(stack.folder, request)
    echo(f"reset to {'an empty state' if to is None else to} in {time.monotonic() - began:.1f} s")


def _start(folder: StateFolder, request: StackRequest) -> None:
    from services.matrixctl.supervisor.machine_check import ready_timeout_wall_s
    from services.matrixctl.supervisor.up import show_progress, start_supervisor

    supervisor = start_supervisor(folder, request.to_json())
    show_progress(folder, supervisor, ready_timeout_wall_s(folder, request.topology))

"""The parameters of a trial as options, and helpers for every command over trials."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from matrixcommon.model.errors import InvalidField, MatrixError
from services.matrixctl.output.screen import NotAccessible, file_error_message

if TYPE_CHECKING:
    from infer_workload.experiments.trial import Trial


class DoesNotFit(MatrixError):
    """The deployment cannot be laid out on that many nodes."""

    status = 409


@dataclass
class TrialOptions:
    """What is served, how, and on what."""

    trace: Annotated[
        Path | None, typer.Option(help="Requests to replay: JSON lines in the Mooncake format, plain or .gz.")
    ] = None
    generate: Annotated[int | None, typer.Option(help="Or generate this many requests of seeded traffic.")] = None
    rate: Annotated[float | None, typer.Option(help="Generated requests per second.")] = None
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0
    nodes: Annotated[int, typer.Option(help="Nodes of the instance, 8 NPUs each.")] = 32
    model: Annotated[str, typer.Option(help="The model: a built-in one, or your own .yaml file.")] = "deepseek-r1"
    machine: Annotated[
        str, typer.Option(help="The machine that serves it: a built-in one, or your own .yaml file.")
    ] = "cloudmatrix384"
    prefill: Annotated[int | None, typer.Option(help="NPUs for prefill (default: the paper's proportion).")] = None
    decode: Annotated[int | None, typer.Option(help="NPUs for decode.")] = None
    caching: Annotated[int | None, typer.Option(help="Nodes that lend memory to the context cache (default: all).")] = (
        None
    )
    block_tokens: Annotated[int, typer.Option(help="Tokens of a context cache block.")] = 512
    batch: Annotated[int | None, typer.Option(help="Maximum requests that an NPU decodes at once.")] = None
    tpot_target: Annotated[
        float | None, typer.Option(help="Adapt the batch to this time per token, s; further requests wait.")
    ] = None
    cache: Annotated[bool, typer.Option(help="Use context caching.")] = True
    cache_plane: Annotated[
        Literal["ub", "vpc"] | None,
        typer.Option(help="Plane over which caches are read (default: UB, if the machine has it)."),
    ] = None
    cache_gb: Annotated[float | None, typer.Option(help="Context cache per node, GB.")] = None
    mtp: Annotated[bool, typer.Option(help="Use multi-token prediction.")] = True
    microbatch: Annotated[Literal["auto", "on", "off"], typer.Option(help="Overlap two microbatches.")] = "auto"
    ub_share: Annotated[float, typer.Option(help="Share of every UB port that is available; others have the rest.")] = (
        1.0
    )
    rdma_share: Annotated[float, typer.Option(help="The same for RDMA ports.")] = 1.0
    vpc_share: Annotated[float, typer.Option(help="The same for VPC ports.")] = 1.0
    neighbour_load: Annotated[
        float, typer.Option(help="Load offered by a neighbour on the same nodes, as a share of every port of a plane.")
    ] = 0.0
    neighbour_plane: Annotated[
        Literal["ub", "rdma", "vpc"], typer.Option(help="Plane on which the neighbour sends.")
    ] = "ub"
    neighbour_weight: Annotated[float, typer.Option(help="Weight of the neighbour's slice; the instance's is 1.")] = 1.0
    floor_share: Annotated[
        float, typer.Option(help="Share of every port of that plane guaranteed to the instance.")
    ] = 0.0
    lost_l2_chips: Annotated[int, typer.Option(help="Number of lost L2 chips of the UB plane, of 112.")] = 0
    half_lanes: Annotated[
        int, typer.Option(help="Number of decode nodes whose UB cables have half of their lanes.")
    ] = 0
    lose_node_at: Annotated[float | None, typer.Option(help="Lose a decode node at this emulated second.")] = None
    ttft: Annotated[float, typer.Option(help="Objective for the first token, s.")] = 2.0
    tpot: Annotated[float, typer.Option(help="Objective for each token after it, s.")] = 0.05

    def given(self) -> dict[str, Any]:
        """Options that differ from the default."""
        found = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in found.items() if value != default}

    def trial(self) -> Trial:
        """Build the trial. Raises InvalidField."""
        from infer_workload.experiments.trial import trial_of

        if (self.trace is None) == (self.generate is None):
            raise InvalidField("give either --trace FILE or --generate N", field="--trace")
        return trial_of(self.given())


def provenance(command: str, trial: Trial, *more: str) -> dict[str, Any]:
    """What reproduces a report: the command, the version, and digests of its input."""
    from services.chassis.version import version

    words = ["matrixctl", "experiment", command, *more, *trial.options()]
    return {
        "command": shlex.join(words),
        "seed": trial.seed,
        "version": version(),
        "trace_sha256": trial.workload_digest,
    } | {f"{name}_sha256": digest for name, digest in trial.file_digests.items()}


@contextmanager
def translating_errors() -> Iterator[None]:
    """Convert a trial's errors into the command line's."""
    from infer_workload.layout import deployment
    from infer_workload.traffic.generator import BadTrace

    try:
        yield
    except deployment.DoesNotFit as wrong:
        options = [str(each["domain"]) for each in wrong.blocking if str(each["domain"]).startswith("--")]
        raise DoesNotFit(str(wrong), field=next(iter(options), "--nodes")) from wrong
    except (BadTrace, OSError) as wrong:
        where = f"{wrong.filename}: " if isinstance(wrong, OSError) and wrong.filename else ""
        raise InvalidField(where + file_error_message(wrong), field="--trace") from wrong


def check_writable(path: Path | None, option: str) -> None:
    """Check before the work that the output file can be written. Raises NotAccessible."""
    if path is None:
        return
    there = path.exists()
    why = errno.EISDIR if path.is_dir() else 0 if there or path.parent.is_dir() else errno.ENOENT
    if not why and not os.access(path if there else path.parent, os.W_OK):
        why = errno.EACCES
    if why:
        raise NotAccessible(f"{path} cannot be written: {os.strerror(why)}", field=option)


def write_output(path: Path | None, text: str, option: str) -> None:
    """Write the file, if a path is given. Raises NotAccessible."""
    if path is None:
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as wrong:
        raise NotAccessible(f"{path} cannot be written: {wrong.strerror}", field=option) from wrong

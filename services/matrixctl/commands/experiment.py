"""experiment: trials of serving in virtual time; nothing has to run for them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField, MatrixError
from services.matrixctl.output.screen import Form, console, document

experiment_app = typer.Typer(help="Serve a trace in virtual time and report.", no_args_is_help=True)


class DoesNotFit(MatrixError):
    """The deployment cannot be laid out on that many nodes."""

    status = 409


@experiment_app.command("run")
def run(
    trace: Annotated[
        Path | None, typer.Option(help="Requests to replay: JSON lines in the Mooncake format, plain or .gz.")
    ] = None,
    generate: Annotated[int | None, typer.Option(help="Or this many requests of seeded traffic.")] = None,
    nodes: Annotated[int, typer.Option(min=1, max=48, help="Nodes of the instance, 8 NPUs each.")] = 32,
    prefill: Annotated[int | None, typer.Option(help="NPUs for prefill (default: the paper's proportion).")] = None,
    decode: Annotated[int | None, typer.Option(help="NPUs for decode.")] = None,
    rate: Annotated[float | None, typer.Option(help="Generated requests a second.")] = None,
    lose_node_at: Annotated[float | None, typer.Option(help="Lose a decode node at that emulated second.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for everything left to chance.")] = 0,
    output: Annotated[Form, typer.Option("--output", "-o", help="How to print the report.")] = Form.TABLE,
) -> None:
    """Serve requests in virtual time; print TTFT, TPOT, tokens a second per NPU and the cache hit rate."""
    from dataclasses import asdict

    from infer_workload.experiments import experiment
    from infer_workload.layout import deployment
    from infer_workload.traffic.generator import BadTrace

    if (trace is None) == (generate is None):
        raise InvalidField("give either --trace FILE or --generate N", field="--trace")
    with _progress() as show:
        try:
            report = experiment.run(
                trace,
                generate,
                nodes=nodes,
                prefill_npus=prefill,
                decode_npus=decode,
                seed=seed,
                requests_per_second=rate,
                lose_node_at_s=lose_node_at,
                progress=show,
            )
        except deployment.DoesNotFit as wrong:
            raise DoesNotFit(str(wrong), field="--nodes") from wrong
        except (BadTrace, OSError) as wrong:
            raise InvalidField(str(wrong), field="--trace") from wrong
        except ValueError as wrong:
            raise InvalidField(str(wrong), field="--generate") from wrong
    if output in (Form.JSON, Form.YAML):
        document(asdict(report), output)
    else:
        print(report.text(), end="")


def _progress() -> Any:
    """A progress bar on a terminal; elsewhere a line of silence."""
    if not sys.stderr.isatty():
        return nullcontext(None)
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    class Bar(Progress):
        def __enter__(self) -> Any:
            super().__enter__()
            task = self.add_task("requests", total=None)

            def show(done: int, total: int, second: float) -> None:
                self.update(task, completed=done, total=total, description=f"{second:,.0f} s emulated")

            return show

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Bar(*columns, console=console(), transient=True)


def register(app: typer.Typer) -> None:
    app.add_typer(experiment_app, name="experiment")

"""experiment: trials of serving in virtual time; nothing has to run for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from matrixcommon.model.errors import InvalidField, MatrixError
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import Output, printed
from services.matrixctl.output.screen import Form, progress

if TYPE_CHECKING:
    from infer_workload.contract import DeploymentShape

group("experiment", "Serve a trace in virtual time and report.")


class DoesNotFit(MatrixError):
    """The deployment cannot be laid out on that many nodes."""

    status = 409


@dataclass
class LayoutOptions:
    """How the model is served."""

    prefill: Annotated[int | None, typer.Option(help="NPUs for prefill (default: the paper's proportion).")] = None
    decode: Annotated[int | None, typer.Option(help="NPUs for decode.")] = None
    block_tokens: Annotated[int, typer.Option(help="Tokens of a context cache block.")] = 512
    cache_gb: Annotated[float | None, typer.Option(help="Context cache on each node, GB.")] = None
    cache: Annotated[bool, typer.Option(help="With context caching, or without.")] = True
    cache_plane: Annotated[Literal["ub", "vpc"], typer.Option(help="The plane that caches are read over.")] = "ub"
    mtp: Annotated[bool, typer.Option(help="With multi-token prediction, or without.")] = True
    microbatch: Annotated[Literal["auto", "on", "off"], typer.Option(help="Two microbatches side by side.")] = "auto"

    def shape(self) -> DeploymentShape:
        """Raises InvalidField for a size that no deployment may have."""
        from pydantic import ValidationError

        from infer_workload.contract import DeploymentShape

        try:
            return DeploymentShape(
                prefill_npus=self.prefill,
                decode_npus=self.decode,
                block_tokens=self.block_tokens,
                context_cache=self.cache,
                cache_plane=self.cache_plane,
                cache_gb_per_node=self.cache_gb,
                mtp=self.mtp,
                microbatching=self.microbatch,
            )
        except ValidationError as wrong:
            first = wrong.errors()[0]
            raise InvalidField(f"{first['loc'][0]}: {first['msg']}", field="--prefill, --decode ...") from wrong


@command("experiment run")
def run(
    layout: LayoutOptions,
    trace: Annotated[
        Path | None, typer.Option(help="Requests to replay: JSON lines in the Mooncake format, plain or .gz.")
    ] = None,
    generate: Annotated[int | None, typer.Option(help="Or this many requests of seeded traffic.")] = None,
    nodes: Annotated[int, typer.Option(min=1, max=48, help="Nodes of the instance, 8 NPUs each.")] = 32,
    rate: Annotated[float | None, typer.Option(help="Generated requests a second.")] = None,
    lose_node_at: Annotated[float | None, typer.Option(help="Lose a decode node at that emulated second.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for everything left to chance.")] = 0,
    output: Output = Form.TABLE,
) -> None:
    """Serve requests in virtual time; print TTFT, TPOT, tokens a second per NPU and the cache hit rate."""
    from infer_workload.experiments import experiment
    from infer_workload.layout import deployment
    from infer_workload.traffic.generator import BadTrace

    if (trace is None) == (generate is None):
        raise InvalidField("give either --trace FILE or --generate N", field="--trace")
    with progress() as show:
        try:
            report = experiment.run(
                trace,
                generate,
                nodes=nodes,
                seed=seed,
                requests_per_second=rate,
                lose_node_at_s=lose_node_at,
                spec=layout.shape(),
                progress=show and (lambda done, total, second: show(done, total, f"{second:,.0f} s emulated")),
            )
        except deployment.DoesNotFit as wrong:
            raise DoesNotFit(str(wrong), field="--nodes") from wrong
        except (BadTrace, OSError) as wrong:
            raise InvalidField(str(wrong), field="--trace") from wrong
        except ValueError as wrong:
            raise InvalidField(str(wrong), field="--generate") from wrong
    if not printed(asdict(report), output):
        print(report.text(), end="")

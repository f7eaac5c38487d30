"""The operators of a decode step or a prefill chunk as a table: time, bounding resource, share of the whole.

The time of a row is that of the whole step: all layers, and both microbatches if there are two. Where streams overlap,
operators add up to more than the step takes; `share` is relative to their sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from infer_workload.experiments.validation.settings import decode_timing, prefill_timing
from infer_workload.layout.deployment import prefill_layout
from infer_workload.timing.calibration import MACHINE, Calibration, entries, load_calibration
from infer_workload.timing.decode import StepOptions
from infer_workload.timing.experts import ExpertLayout
from infer_workload.timing.model import MODEL, ServedModel, load_model
from infer_workload.timing.operators import ATTENTION, EXPERTS, Operator


class TooFewDies(ValueError):
    """The model's weights do not fit the memory of that many dies."""


@dataclass(frozen=True)
class OperatorRow:
    """One operator: its work and time in the whole step, on one die."""

    stream: str
    name: str
    engine: str
    times: int
    """Number of runs in a step."""
    ms: float
    share: float
    bound: str
    operations_g: float
    hbm_mb: float
    vector_mb: float
    wire_mb: float
    source: str
    """The constant that bounds it, with its kind and source."""


@dataclass(frozen=True)
class OperatorTable:
    """The rows, and the time of the step or chunk with streams overlapped."""

    phase: str
    model: str
    machine: str
    dies: int
    batch: int | None
    """Decode: requests per NPU."""
    tokens: int | None
    """Prefill: tokens of the chunk per NPU."""
    rows: list[OperatorRow]
    summed_ms: float
    step_ms: float
    microbatches: int
    attention_cores: int | None
    """Matrix cores of the attention stream if two streams share a die."""
    tokens_per_s_per_npu: float
    tpot_ms: float | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def decode_table(
    batch: int | None,
    context: int,
    dies: int | None,
    model: str = MODEL,
    microbatch: bool | None = None,
    machine: str = MACHINE,
) -> OperatorTable:
    """A decode step with `batch` requests per NPU of `context` tokens each, in a pool of `dies`. A value of None is
    that of the paper's deployment on the machine.

    Raises UnknownDataFile or BadDataFile for the model or the machine, TooFewDies if the model's weights do not fit.
    """
    served, current = load_model(model), load_calibration(machine)
    decode_nodes = current.paper_nodes - current.paper_prefill_nodes
    dies, batch = dies or decode_nodes * current.dies_per_node, batch or current.decode_batch_per_npu
    timing = decode_timing(dies, current, StepOptions(microbatch, mtp=served.draft_layers > 0), served)
    _check_memory(served, timing.layout, current)
    requests, cores = batch / current.dies_per_npu, None
    kinds, once = timing.operators(requests, requests * context)
    passes = 2 if timing.microbatched(requests) else 1
    listed: list[tuple[Operator, int, float, float]] = []
    for kind in kinds:
        share, sending = 1.0, 1.0
        if passes == 2:
            cores = timing.attention_cores(requests, requests * context)
            share = cores / current.cube_cores
            sending = min(1.0, (1.0 - share) / current.ub_saturating_cores)
        times = kind.layers * passes
        listed += [(each, times, share, 1.0) for each in kind.attention]
        listed += [(each, times, 1.0 if passes == 1 else 1.0 - share, sending) for each in kind.experts]
    listed += [(each, 1, 1.0, 1.0) for each in once]
    rows, summed_ms = _rows(listed, entries(machine))
    step = timing.exact_step_s(requests, requests * context)
    tpot = step / timing.tokens_per_step
    return OperatorTable(
        phase="decode",
        model=model,
        machine=machine,
        dies=dies,
        batch=batch,
        tokens=None,
        rows=rows,
        summed_ms=summed_ms,
        step_ms=step * 1e3,
        microbatches=passes,
        attention_cores=cores,
        tokens_per_s_per_npu=batch / tpot,
        tpot_ms=tpot * 1e3,
    )


def prefill_table(
    tokens: int | None, prompt: int, dies: int | None, model: str = MODEL, machine: str = MACHINE
) -> OperatorTable:
    """A prefill chunk of `tokens` per NPU, in prompts of `prompt` tokens, on an instance of `dies`. None and errors as
    for `decode_table`."""
    served, current = load_model(model), load_calibration(machine)
    dies = dies or current.nodes_per_prefill_instance * current.dies_per_node
    tokens = tokens or current.prefill_tokens_per_npu
    timing = replace(prefill_timing(dies, current, model=served), layout=prefill_layout(dies, served, current))
    _check_memory(served, timing.layout, current)
    parts = [(prompt, 0)] * max(1, tokens * dies // current.dies_per_npu // prompt)
    chunk = timing.exact_chunk_s(parts)
    paired = timing.paired(parts)
    sparse, dense = timing.operators(parts, 0.5 if paired else 1.0)
    passes = 2 if paired else 1
    listed = [(each, passes * served.moe_layers, 1.0, 1.0) for each in sparse]
    listed += [(each, passes * served.dense_layers, 1.0, 1.0) for each in dense] if served.dense_layers else []
    launch = Operator("graph launch", "step", "host", current.launch_ms * 1e-3)
    rows, summed_ms = _rows([*listed, (launch, 1, 1.0, 1.0)], entries(machine))
    rate = sum(new for new, _ in parts) / chunk / (dies / current.dies_per_npu)
    return OperatorTable(
        phase="prefill",
        model=model,
        machine=machine,
        dies=dies,
        batch=None,
        tokens=tokens,
        rows=rows,
        summed_ms=summed_ms,
        step_ms=chunk * 1e3,
        microbatches=passes,
        attention_cores=None,
        tokens_per_s_per_npu=rate,
        tpot_ms=None,
    )


def _check_memory(model: ServedModel, layout: ExpertLayout, calibration: Calibration) -> None:
    needs_gb = model.die_weight_bytes(layout.experts_per_die) / 1e9
    if needs_gb > calibration.hbm_gb:
        raise TooFewDies(
            f"on {layout.dies} dies the weights need {needs_gb:.0f} GB of HBM per die, which has "
            f"{calibration.hbm_gb:.0f} GB"
        )


def _rows(
    listed: Sequence[tuple[Operator, int, float, float]], sources: Mapping[str, Mapping[str, Any]]
) -> tuple[list[OperatorRow], float]:
    """One row per operator name, in the order of their streams, and the milliseconds of all rows."""
    merged: dict[tuple[str, str], list[Any]] = {}
    for each, times, share, sending in listed:
        found = merged.setdefault((each.stream, each.name), [each, 0, 0.0])
        found[1] += times
        found[2] += times * each.seconds(share, sending) if each.engine != "host" else times * each.launch_s
    total = sum(found[2] for found in merged.values())
    rows = [_row(each, times, seconds, total, sources) for each, times, seconds in merged.values()]
    order = {ATTENTION: 0, EXPERTS: 1}
    rows.sort(key=lambda row: order.get(row.stream, 2))
    return rows, total * 1e3


def _row(
    each: Operator, times: int, seconds: float, total: float, sources: Mapping[str, Mapping[str, Any]]
) -> OperatorRow:
    constant = "launch_ms" if each.engine == "host" else each.source()
    entry = sources[constant]
    return OperatorRow(
        stream=each.stream,
        name=each.name,
        engine=each.engine,
        times=times,
        ms=seconds * 1e3,
        share=seconds / total,
        bound=each.bound(),
        operations_g=times * each.operations / 1e9,
        hbm_mb=times * each.hbm_bytes / 1e6,
        vector_mb=times * each.vector_bytes / 1e6,
        wire_mb=times * each.wire_bytes / 1e6,
        source=f"{constant} ({entry['kind']}): {entry['source']}",
    )

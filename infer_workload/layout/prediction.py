"""Predict the time of a decode step from a FabricView alone.

It is the timing that the engine uses, for use from outside: to compare a measured deployment with what its fabric
allows, as the demo and a story do. Seconds, tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from infer_workload.timing.calibration import Calibration, load_calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.decode import DecodeTiming
from infer_workload.timing.experts import place_experts
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import ServedModel, load_model

KV_TOKENS_PER_REQUEST = 4096.0
"""Assumed KV tokens of a request in flight: a typical prompt and half of its answer."""


@cache
def _served() -> tuple[ServedModel, Calibration]:
    return load_model(), load_calibration()


def decode_timing_on(view: Any, roles: Mapping[str, str]) -> DecodeTiming:
    """The timing of the decode pool given by `roles` (node to role), on a FabricView."""
    model, calibration = _served()
    nodes = tuple(sorted(node for node, role in roles.items() if role == "decode"))
    layout = place_experts(len(nodes) * calibration.dies_per_node, model)
    exchange = Exchange(Fabric.of(view, calibration), calibration, nodes, layout.dies)
    return DecodeTiming(model, calibration, exchange, layout)


def decode_step_s(
    view: Any, roles: Mapping[str, str], batch_per_npu: float, kv_tokens_per_request: float = KV_TOKENS_PER_REQUEST
) -> float:
    """Seconds of one step with that many requests per NPU."""
    requests = batch_per_npu / 2
    return decode_timing_on(view, roles).exact_step_s(requests, requests * kv_tokens_per_request)

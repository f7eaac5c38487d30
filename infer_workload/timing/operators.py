"""One operator on one die: its work, the engine it runs on, and the rate that limits it.

An operator occupies one engine: the matrix cores (including their HBM reads), the vector cores, or the UB port
(including the cores that write to it). A compute operator takes its launch plus the slowest of its parts, because
reading weights and multiplying overlap. An exchange takes its start, issue and wire time one after another, because
sending a token and addressing the next do not overlap. With a share of the cores, work on cores takes longer and HBM
reads do not. Seconds, bytes and operations, all for one die.
"""

from __future__ import annotations

from typing import NamedTuple

from infer_workload.timing.calibration import Calibration

CUBE, VECTOR, UB = "cube", "vector", "ub"
ATTENTION, EXPERTS, STEP = "attention", "experts", "step"
"""The two streams of a layer, and operators that run once per step."""


class Operator(NamedTuple):
    """One operator's work for one microbatch and layer, and the seconds of each part when it has all cores of the
    die."""

    name: str
    stream: str
    engine: str
    launch_s: float
    cube_s: float = 0.0
    hbm_s: float = 0.0
    vector_s: float = 0.0
    start_s: float = 0.0
    issue_s: float = 0.0
    wire_s: float = 0.0
    operations: float = 0.0
    hbm_bytes: float = 0.0
    vector_bytes: float = 0.0
    wire_bytes: float = 0.0
    leaving_bytes: float = 0.0
    """The part of `wire_bytes` that goes to dies of other nodes."""
    rate: str = ""
    """Name of the constant that sets the rate of its matrix or wire part."""

    def seconds(self, cores: float = 1.0, sending: float = 1.0) -> float:
        """Time with that share of the cores, which can feed the share `sending` of the UB rate."""
        if self.engine == UB:
            return self.start_s + self.issue_s / cores + self.wire_s / sending
        return self.launch_s + max(self.cube_s / cores, self.hbm_s, self.vector_s / cores)

    def bound(self) -> str:
        """Name of the part that takes longest."""
        parts = {
            "launch": self.launch_s + self.start_s,
            CUBE: self.cube_s,
            "hbm": self.hbm_s,
            VECTOR: self.vector_s,
            "issue": self.issue_s,
            "wire": self.wire_s,
        }
        return max(parts, key=lambda part: parts[part])

    def source(self) -> str:
        """Name of the constant behind the part that takes longest."""
        start = "exchange_start_us" if self.engine == UB else "launch_us"
        return {
            "launch": start,
            CUBE: self.rate or "gemm_efficiency",
            "hbm": "memory_efficiency",
            VECTOR: "vector_gbps",
            "issue": "dispatch_issue_us",
            "wire": self.rate or "ub_efficiency",
        }[self.bound()]


class Die:
    """Creates operators from amounts of work at the rates of `calibration`; `straggler_factor` is the factor by which
    waiting for slower ranks stretches them."""

    def __init__(self, calibration: Calibration, straggler_factor: float = 1.0) -> None:
        self.launch_s = calibration.launch_us * 1e-6
        self._hbm = straggler_factor / (calibration.hbm_gbps * 1e9 * calibration.memory_efficiency)
        self._int8 = straggler_factor / (calibration.int8_tops * 1e12 * calibration.gemm_efficiency)
        self._bf16 = straggler_factor / (calibration.bf16_tflops * 1e12 * calibration.gemm_efficiency)
        self._attention = straggler_factor / (calibration.bf16_tflops * 1e12 * calibration.attention_compute_efficiency)
        vector_gbps = calibration.vector_gbps * calibration.vector_scale
        self._vector = straggler_factor / (min(vector_gbps, calibration.hbm_gbps) * 1e9)

    def gemm(
        self,
        name: str,
        stream: str,
        parameters: float,
        rows: float,
        size: float,
        wide: bool = False,
        fused: bool = False,
    ) -> Operator:
        """A matrix product of `rows` with `parameters` weights of `size` bytes each: BF16 if `wide`, else INT8. It has
        no launch of its own if it is `fused` with the operator before."""
        operations, read = 2.0 * parameters * rows, parameters * size
        return Operator(
            name, stream, CUBE, 0.0 if fused else self.launch_s,
            cube_s=operations * (self._bf16 if wide else self._int8), hbm_s=read * self._hbm,
            operations=operations, hbm_bytes=read, rate="gemm_efficiency",
        )  # fmt: skip

    def attention(self, operations: float, read: float) -> Operator:
        """The attention core: BF16 operations, and `read` bytes of KV cache."""
        return Operator(
            "attention core", ATTENTION, CUBE, self.launch_s,
            cube_s=operations * self._attention, hbm_s=read * self._hbm,
            operations=operations, hbm_bytes=read, rate="attention_compute_efficiency",
        )  # fmt: skip

    def vector(self, name: str, stream: str, moved: float, fused: bool = False) -> Operator:
        """Element-wise work that moves `moved` bytes to and from the vector cores."""
        launch = 0.0 if fused else self.launch_s
        return Operator(name, stream, VECTOR, launch, vector_s=moved * self._vector, vector_bytes=moved)

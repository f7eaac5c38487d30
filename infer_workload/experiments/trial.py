"""A trial: all the inputs of an experiment as one value, which can be written down and run again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from infer_workload.contract.deployments import DeploymentShape, Npus
from infer_workload.reports.report import TPOT_OBJECTIVE_S, TTFT_OBJECTIVE_S
from infer_workload.timing.calibration import MACHINE, load_calibration
from infer_workload.timing.data_files import UnknownDataFile
from infer_workload.timing.model import MODEL, load_model
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.validation import validation_message

PAPER_NODES = 32
NO_PLANE, RATE_OF_TRACE = "no_plane", "rate_of_trace"
SHARES = {"ub": "ub_share", "rdma": "rdma_share", "vpc": "vpc_share"}


class Trial(BaseModel):
    """Requests, the deployment that serves them, its fabric and its faults. Frozen; equal trials have equal results.

    Lengths are in tokens, rates in requests per second, times in emulated seconds; shares are fractions of 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    trace: Path | None = Field(None, description="requests to replay: JSON lines in the Mooncake format, plain or .gz")
    generate: int | None = Field(
        None, ge=1, le=10_000_000, description="number of requests of seeded traffic, in place of a trace"
    )
    rate: float | None = Field(None, gt=0, le=100_000, description="generated requests per second")
    seed: int = Field(0, description="random seed")
    nodes: int = Field(PAPER_NODES, ge=1, le=48, description="nodes of the instance, 8 NPUs each")
    model: str = Field(MODEL, description="model to serve: the name of an included one, or a file ending in .yaml")
    machine: str = Field(MACHINE, description="machine that serves it: likewise a name or a file")
    prefill: Npus | None = Field(None, description="NPUs for prefill")
    decode: Npus | None = Field(None, description="NPUs for decode")
    caching: int | None = Field(None, ge=1, le=48, description="nodes that lend memory to the context cache")
    block_tokens: int = Field(512, ge=128, le=512, description="tokens per block of the context cache")
    batch: int | None = Field(None, ge=2, le=1024, description="most requests that one NPU decodes at the same time")
    tpot_target: float | None = Field(
        None, gt=0, le=60, description="target time per token, s, to which the batch adapts; requests wait to keep it"
    )
    cache: bool = Field(True, description="with context caching")
    cache_plane: Literal["ub", "vpc"] | None = Field(
        None, description="plane over which caches are read; by default UB, if the machine's UB spans nodes"
    )
    cache_gb: float | None = Field(None, ge=0, le=4096, description="context cache on each node, GB")
    mtp: bool = Field(True, description="with multi-token prediction")
    microbatch: Literal["auto", "on", "off"] = Field("auto", description="whether to overlap two microbatches")
    ub_share: float = Field(
        1.0, gt=0, le=1, description="fraction of every UB port granted to the instance; others have the rest"
    )
    rdma_share: float = Field(1.0, gt=0, le=1, description="the same for RDMA ports")
    vpc_share: float = Field(1.0, gt=0, le=1, description="the same for VPC ports")
    neighbour_load: float = Field(
        0.0, ge=0, le=1, description="load that a neighbour on the same nodes offers, as a fraction of each port"
    )
    neighbour_plane: Literal["ub", "rdma", "vpc"] = Field("ub", description="plane that the neighbour sends on")
    neighbour_weight: float = Field(
        1.0, ge=0.001, le=1000, description="weight of the neighbour's slice; the instance's is 1"
    )
    floor_share: float = Field(
        0.0, ge=0, le=1, description="fraction of each port of that plane guaranteed to the instance"
    )
    lost_l2_chips: int = Field(0, ge=0, le=96, description="lost L2 chips of the UB plane, of 112")
    half_lanes: int = Field(0, ge=0, le=48, description="decode nodes whose UB cables have lost half of their lanes")
    lose_node_at: float | None = Field(None, ge=0, description="when the last decode node is lost, s")
    ttft: float = Field(TTFT_OBJECTIVE_S, gt=0, description="objective for time to first token, s")
    tpot: float = Field(TPOT_OBJECTIVE_S, gt=0, description="objective for time per token after it, s")

    @field_validator("model")
    @classmethod
    def _check_model(cls, name: str) -> str:
        return _check_loads(name, load_model)

    @field_validator("machine")
    @classmethod
    def _check_machine(cls, name: str) -> str:
        return _check_loads(name, load_calibration)

    @model_validator(mode="after")
    def _check_workload(self) -> Trial:
        if (self.trace is None) == (self.generate is None):
            raise ValueError("give either a trace or a number of requests to generate")
        if self.trace is not None and self.rate is not None:
            text = "applies to generated requests only; those of a trace keep their recorded times"
            raise PydanticCustomError(RATE_OF_TRACE, text, {"field": "rate"})
        return self

    @model_validator(mode="after")
    def _check_planes(self) -> Trial:
        has = load_calibration(self.machine).planes
        for name, plane in self._required_planes():
            if plane not in has:
                raise PydanticCustomError(
                    NO_PLANE,
                    "the nodes of machine {machine} are not connected by {plane}; they have {has}",
                    {"field": name, "machine": self.machine, "plane": plane, "has": ", ".join(has)},
                )
        return self

    def _required_planes(self) -> list[tuple[str, str]]:
        """(parameter, plane) for each parameter set that needs a plane."""
        asked: list[tuple[str, str]] = []
        if self.cache and self.cache_plane:
            asked.append(("cache_plane", self.cache_plane))
        asked += [(share, plane) for plane, share in SHARES.items() if getattr(self, share) < 1]
        asked += [(name, self.neighbour_plane) for name in ("neighbour_load", "floor_share") if getattr(self, name)]
        return asked + [(name, "ub") for name in ("lost_l2_chips", "half_lanes") if getattr(self, name)]

    @property
    def contended(self) -> bool:
        """Whether its fabric has losses or a neighbour."""
        return bool(self.neighbour_load or self.lost_l2_chips or self.half_lanes)

    def shape(self) -> DeploymentShape:
        """The shape of the deployment."""
        return DeploymentShape(
            prefill_npus=self.prefill,
            decode_npus=self.decode,
            caching_nodes=self.caching,
            block_tokens=self.block_tokens,
            batch_per_npu=self.batch,
            tpot_target_s=self.tpot_target,
            context_cache=self.cache,
            cache_plane=self.cache_plane,
            cache_gb_per_node=self.cache_gb,
            mtp=self.mtp,
            microbatching=self.microbatch,
        )

    def with_changes(self, changes: dict[str, Any]) -> Trial:
        """The same with some parameters changed. Raises InvalidField."""
        return trial_of({**self.model_dump(exclude_defaults=True), **changes})

    def options(self) -> list[str]:
        """The options of `matrixctl experiment run` for every parameter that differs from its default."""
        words: list[str] = []
        for name, value in self.model_dump(mode="json", exclude_defaults=True).items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            else:
                words.append(f"--{option}={value}")
        return words

    @property
    def workload_digest(self) -> str | None:
        """For a trace, twelve hex digits of its SHA-256, to detect another file of the same name."""
        return None if self.trace is None else _digest(self.trace)

    @property
    def file_digests(self) -> dict[str, str]:
        """The same for the user's own model and machine files, by `model` and `machine`."""
        given = {"model": self.model, "machine": self.machine}
        return {name: _digest(Path(file)) for name, file in given.items() if file.endswith(".yaml")}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _check_loads(name: str, load: Callable[[str], object]) -> str:
    """Return `name` if its file of constants loads. Raises ValueError if there is no such file."""
    try:
        load(name)
    except UnknownDataFile as wrong:
        raise ValueError(str(wrong)) from wrong
    return name


PARAMETERS: tuple[str, ...] = tuple(name for name in Trial.model_fields if name != "trace")
"""The parameters that a sweep may vary."""


def trial_of(parameters: dict[str, Any]) -> Trial:
    """A trial of these parameters; values may be text, as on the command line. Raises InvalidField for the first wrong
    one, saying what would be accepted."""
    try:
        return Trial.model_validate(parameters)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "trace"
        if first["type"] in (NO_PLANE, RATE_OF_TRACE):
            name = first["ctx"]["field"]
        if first["type"] == "extra_forbidden":
            why = f"unknown parameter {name!r}; the parameters are {', '.join(PARAMETERS)}"
            raise InvalidField(why, field=name) from wrong
        raise InvalidField(validation_message(first), field=f"--{name.replace('_', '-')}") from wrong

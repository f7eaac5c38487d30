"""A trial: everything that decides what an experiment finds, as one value that can be written down and run again."""

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

PAPER_NODES = 32
NO_PLANE, RATE_OF_TRACE = "no_plane", "rate_of_trace"
SHARES = {"ub": "ub_share", "rdma": "rdma_share", "vpc": "vpc_share"}


class Trial(BaseModel):
    """Requests, the deployment that serves them, its fabric and what befalls it. Frozen; equal trials find the same.

    Lengths are tokens, rates requests a second, times emulated seconds, shares parts of one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    trace: Path | None = Field(None, description="requests to replay: JSON lines in the Mooncake format, plain or .gz")
    generate: int | None = Field(None, ge=1, le=10_000_000, description="or so many requests of seeded traffic")
    rate: float | None = Field(None, gt=0, le=100_000, description="generated requests a second")
    seed: int = Field(0, description="seed of everything left to chance")
    nodes: int = Field(PAPER_NODES, ge=1, le=48, description="nodes of the instance, 8 NPUs each")
    model: str = Field(MODEL, description="model that is served: one that is carried along, or a file ending in .yaml")
    machine: str = Field(MACHINE, description="machine that serves it: the same")
    prefill: Npus | None = Field(None, description="NPUs for prefill")
    decode: Npus | None = Field(None, description="NPUs for decode")
    caching: int | None = Field(None, ge=1, le=48, description="nodes that lend memory to the context cache")
    block_tokens: int = Field(512, ge=128, le=512, description="tokens of a block of the context cache")
    batch: int | None = Field(None, ge=2, le=1024, description="requests an NPU decodes at once, at most")
    tpot_target: float | None = Field(
        None, gt=0, le=60, description="seconds of a token that the batch adapts to; requests wait for it"
    )
    cache: bool = Field(True, description="with context caching")
    cache_plane: Literal["ub", "vpc"] | None = Field(
        None, description="the plane that caches are read over; by default UB, where the machine has it between nodes"
    )
    cache_gb: float | None = Field(None, ge=0, le=4096, description="context cache on each node, GB")
    mtp: bool = Field(True, description="with multi-token prediction")
    microbatch: Literal["auto", "on", "off"] = Field("auto", description="two microbatches side by side")
    ub_share: float = Field(1.0, gt=0, le=1, description="share of every UB port that is granted; others have the rest")
    rdma_share: float = Field(1.0, gt=0, le=1, description="the same of RDMA ports")
    vpc_share: float = Field(1.0, gt=0, le=1, description="the same of VPC ports")
    neighbour_load: float = Field(
        0.0, ge=0, le=1, description="part of every port of a plane that a neighbour on the same nodes offers to send"
    )
    neighbour_plane: Literal["ub", "rdma", "vpc"] = Field("ub", description="the plane that it sends on")
    neighbour_weight: float = Field(
        1.0, ge=0.001, le=1000, description="the weight of its slice, the instance's being 1"
    )
    floor_share: float = Field(0.0, ge=0, le=1, description="part of every port of that plane that is guaranteed")
    lost_l2_chips: int = Field(0, ge=0, le=96, description="L2 chips of the UB plane that are lost, of 112")
    half_lanes: int = Field(0, ge=0, le=48, description="decode nodes whose UB cables have half of their lanes")
    lose_node_at: float | None = Field(None, ge=0, description="when the last decode node is lost")
    ttft: float = Field(TTFT_OBJECTIVE_S, gt=0, description="objective for the first token, s")
    tpot: float = Field(TPOT_OBJECTIVE_S, gt=0, description="objective for each token after it, s")

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        return _usable(name, load_model)

    @field_validator("machine")
    @classmethod
    def _known_machine(cls, name: str) -> str:
        return _usable(name, load_calibration)

    @model_validator(mode="after")
    def _one_workload(self) -> Trial:
        if (self.trace is None) == (self.generate is None):
            raise ValueError("give a trace or a number of requests to generate, one of the two")
        if self.trace is not None and self.rate is not None:
            text = "it is that of generated requests; those of a trace come when they came"
            raise PydanticCustomError(RATE_OF_TRACE, text, {"field": "rate"})
        return self

    @model_validator(mode="after")
    def _on_planes_there_are(self) -> Trial:
        has = load_calibration(self.machine).planes
        for name, plane in self._planes_asked():
            if plane not in has:
                raise PydanticCustomError(
                    NO_PLANE,
                    "the machine {machine} has no {plane} between its nodes; it has {has}",
                    {"field": name, "machine": self.machine, "plane": plane, "has": ", ".join(has)},
                )
        return self

    def _planes_asked(self) -> list[tuple[str, str]]:
        """Parameters that say something of a plane, and which."""
        asked: list[tuple[str, str]] = []
        if self.cache and self.cache_plane:
            asked.append(("cache_plane", self.cache_plane))
        asked += [(share, plane) for plane, share in SHARES.items() if getattr(self, share) < 1]
        asked += [(name, self.neighbour_plane) for name in ("neighbour_load", "floor_share") if getattr(self, name)]
        return asked + [(name, "ub") for name in ("lost_l2_chips", "half_lanes") if getattr(self, name)]

    @property
    def contended(self) -> bool:
        """Whether its fabric is not whole, or not its own."""
        return bool(self.neighbour_load or self.lost_l2_chips or self.half_lanes)

    def shape(self) -> DeploymentShape:
        """How the model is served."""
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

    def varied(self, changes: dict[str, Any]) -> Trial:
        """The same with some parameters changed. Raises InvalidField."""
        return trial_of({**self.model_dump(exclude_defaults=True), **changes})

    def options(self) -> list[str]:
        """What is not as by default, as `matrixctl experiment run` takes it."""
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
        """Of a trace, twelve hex digits of its SHA-256, so that another file of its name is found out."""
        return None if self.trace is None else _digest(self.trace)

    @property
    def file_digests(self) -> dict[str, str]:
        """The same of a model and a machine of one's own, by `model` and `machine`."""
        given = {"model": self.model, "machine": self.machine}
        return {name: _digest(Path(file)) for name, file in given.items() if file.endswith(".yaml")}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _usable(name: str, load: Callable[[str], object]) -> str:
    """The name of a file of constants that can be used. Raises ValueError with the file's field."""
    try:
        load(name)
    except UnknownDataFile as wrong:
        raise ValueError(str(wrong)) from wrong
    return name


PARAMETERS: tuple[str, ...] = tuple(name for name in Trial.model_fields if name != "trace")
"""What a sweep may vary."""


def trial_of(parameters: dict[str, Any]) -> Trial:
    """A trial of these parameters; values may be text, as an option has them. Raises InvalidField naming the first that
    is wrong and what would be accepted."""
    try:
        return Trial.model_validate(parameters)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "trace"
        if first["type"] in (NO_PLANE, RATE_OF_TRACE):
            name = first["ctx"]["field"]
        if first["type"] == "extra_forbidden":
            raise InvalidField(f"{name!r} is no parameter; there are {', '.join(PARAMETERS)}", field=name) from wrong
        raise InvalidField(first["msg"].removeprefix("Value error, "), field=f"--{name.replace('_', '-')}") from wrong

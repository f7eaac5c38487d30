"""How well a deployment with an objective meets it when offered more load than it can serve.

Runs in virtual time, with the endpoint's admission. Capacity is the rate served in time without admission, at the rate
given with each mix: the highest at which about 99 of 100 requests are in time. For multiples of that rate, the figures
are the share of admitted requests that meet both objectives, each by its own time to first token and mean time per
token, and the rate of such requests per second. Answers of up to three tokens are left out: their KV cache has to be
transferred first, which takes longer than such an answer may take even in an empty pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, inf, log
from random import Random

from benchmarks import Figure
from infer_workload.contract.deployments import DeploymentRequest, ServingObjective
from infer_workload.ems.model_cache import ModelCache
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.layout.recovery import plan_change_at_any_size
from infer_workload.serving.live.admission import Admission
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.fabric import RDMA, Ports
from infer_workload.timing.model import load_model
from matrixcommon.model.errors import Overloaded
from matrixlink.fabric.contention.ports_left import AvailablePorts

LOAD_FACTORS = (1.2, 2.0, 4.0, 10.0)
SECONDS, WARM_UP_S = 60.0, 15.0
SHORTEST_TOKENS = 4
SHARE_MIN = 99.0
URGENT = 0.2
BURST_S, QUIET_S = 2.0, 6.0
"""The duration of a burst, and of the pause after it."""


@dataclass(frozen=True)
class Mix:
    """Lengths are log-uniform between two bounds. `reused` of the prompts share three quarters of their length with one
    of fifty prefixes. `per_second` is the capacity."""

    name: str
    prompts: tuple[int, int]
    answers: tuple[int, int]
    prefill_npus: int
    decode_npus: int
    per_second: float
    model: str = "deepseek-r1"
    ttft_s: float = 2.0
    tpot_s: float = 0.05
    reused: float = 0.0

    @property
    def spec(self) -> DeploymentRequest:
        return DeploymentRequest(
            instance="i",
            model=self.model,
            prefill_npus=self.prefill_npus,
            decode_npus=self.decode_npus,
            objective=ServingObjective(ttft_s=self.ttft_s, tpot_s=self.tpot_s),
        )


MIXES = (
    Mix("prefill-bound", (1000, 8000), (50, 300), 16, 16, 20.0),
    Mix("prefill-bound, 60 % reused", (1000, 8000), (50, 300), 16, 16, 40.0, reused=0.6),
    Mix("decode-bound", (500, 2000), (400, 1600), 32, 16, 40.0),
    Mix("decode-bound, answers of 100", (3000, 5000), (60, 200), 192, 16, 160.0),
    Mix("short answers", (500, 4000), (2, 60), 16, 16, 34.0),
    Mix("long context", (16_000, 100_000), (100, 500), 32, 16, 1.75, ttft_s=15.0),
    Mix("qwen3-235b", (500, 2000), (400, 1600), 32, 16, 40.0, model="qwen3-235b"),
)


@dataclass
class OverloadResult:
    """The results of one run, for requests that arrived after `WARM_UP_S`."""

    mix: Mix
    seconds: float
    refused: int = 0
    refused_urgent: int = 0
    served: list[InferenceRequest] = field(default_factory=list)
    lost: int = 0

    def in_time(self, request: InferenceRequest) -> bool:
        return request.ttft_s <= self.mix.ttft_s and request.tpot_s <= self.mix.tpot_s

    def share(self, since_s: float = WARM_UP_S, until_s: float = inf) -> float:
        """The share within both objectives of the admitted requests that arrived in that period."""
        counted = [
            each
            for each in self.served
            if since_s <= each.arrived_at < until_s and each.output_tokens >= SHORTEST_TOKENS
        ]
        return sum(map(self.in_time, counted)) / len(counted) if counted else 1.0

    @property
    def per_second(self) -> float:
        """Requests within both objectives, per second."""
        counted = [each for each in self.served if each.arrived_at >= WARM_UP_S]
        return sum(map(self.in_time, counted)) / (self.seconds - WARM_UP_S)

    @property
    def tokens_per_second(self) -> float:
        """The answer tokens of those requests, per second."""
        counted = [each for each in self.served if each.arrived_at >= WARM_UP_S and self.in_time(each)]
        return sum(each.output_tokens for each in counted) / (self.seconds - WARM_UP_S)


def offer_load(
    mix: Mix,
    per_second: float,
    seconds: float = SECONDS,
    *,
    with_admission: bool = True,
    bursts: bool = False,
    event: str = "",
    urgent: float = 0.0,
    seed: int = 1,
) -> OverloadResult:
    """Offer a mix at a rate; the share `urgent` of requests has a higher priority. Halfway through, `event` may be the
    loss of a node ("loss"), the closing of a prefill instance as for a change of roles ("roles"), or another tenant
    that takes most of the plane that KV moves over ("neighbour")."""
    spec = mix.spec
    machine, found = load_calibration(), OverloadResult(mix, seconds)
    nodes = (mix.prefill_npus + mix.decode_npus) // 8
    deployment = lay_out(healthy_fabric(nodes), load_model(mix.model), machine, spec)
    engine = Engine(deployment, seed, on_finished=found.served.append)
    admission, admitted, priorities = Admission(), 0, Random(f"priorities {seed}")
    for number, (at, prompt, answer, blocks) in enumerate(_arrivals(mix, per_second, seconds, bursts, seed)):
        if event and at >= seconds / 2:
            engine.advance(seconds / 2)
            _inject_event(engine, event)
            event = ""
        engine.advance(at)
        priority = -1 if priorities.random() < urgent else 0
        request = InferenceRequest(number, at, prompt, answer, blocks, priority=priority)
        try:
            if with_admission:
                admission.check(engine, spec, request)
        except Overloaded:
            found.refused += at >= WARM_UP_S
            found.refused_urgent += at >= WARM_UP_S and priority < 0
            continue
        engine.submit(request)
        admitted += 1
    engine.advance(inf)
    found.lost = admitted - len(found.served)
    return found


def _arrivals(
    mix: Mix, per_second: float, seconds: float, bursts: bool, seed: int
) -> Iterator[tuple[float, int, int, tuple[int, ...]]]:
    rng, at, fresh = Random(seed), 0.0, 1_000_000
    period = BURST_S + QUIET_S
    while True:
        at += rng.expovariate(per_second * (period / BURST_S if bursts else 1.0))
        comes = at // BURST_S * period + at % BURST_S if bursts else at
        if comes > seconds:
            return
        prompt, answer = (round(exp(rng.uniform(log(low), log(high)))) for low, high in (mix.prompts, mix.answers))
        blocks: tuple[int, ...] = ()
        if mix.reused:
            count = -(-prompt // 512)
            known = int(count * 0.75) if rng.random() < mix.reused else 0
            first = 1000 * rng.randrange(50)
            blocks = (*range(first, first + known), *range(fresh, fresh + count - known))
            fresh += count
        yield comes, prompt, answer, blocks


def _inject_event(engine: Engine, event: str) -> None:
    now = engine.deployment
    if event == "loss":
        left = now.fabric.without([now.pools.decode[-1]])
        change = plan_change_at_any_size(now, left, ModelCache(now.calibration, {now.model.name}))
        engine.apply_layout(change.deployment, change.pause_s, change.start_s)
    elif event == "roles":
        engine.cordon_outside(now.pools.restricted_to(now.pools.nodes - set(now.pools.prefill[-1])))
    else:
        ports = {(RDMA, node): _quarter_free(each) for node, each in now.fabric.ports[RDMA].items()}
        engine.apply_contention(MeasuredContention({}, ports), engine.now)


def _quarter_free(ports: Ports) -> AvailablePorts:
    """The rates that remain when another tenant takes three quarters."""
    node, end = ([rate / 4 for rate in rates] for rates in (ports.uplink_gbps, ports.endpoint_gbps))
    return AvailablePorts(node, node, end, end)


def measure() -> Iterator[Figure]:
    for mix in MIXES:
        capacity = offer_load(mix, mix.per_second, with_admission=False)
        for times in LOAD_FACTORS:
            yield from _figures(f"{mix.name} x{times:g}", offer_load(mix, times * mix.per_second), capacity)
        yield from _figures(f"{mix.name} x4 in bursts", offer_load(mix, 4 * mix.per_second, bursts=True), None)
        found = offer_load(mix, 2 * mix.per_second, urgent=URGENT)
        yield from _figures(f"{mix.name} x2, a fifth of it urgent", found, capacity)


def _figures(name: str, found: OverloadResult, capacity: OverloadResult | None) -> Iterator[Figure]:
    refused = found.refused / max(1, found.refused + len(found.served))
    method = f"{len(found.served)} admitted, {refused:.0%} refused, {found.lost} lost"
    yield Figure(f"{name}: in time", 100 * found.share(), "%", method, goal_min=SHARE_MIN)
    if capacity is not None:
        requests, tokens = found.per_second / capacity.per_second, found.tokens_per_second / capacity.tokens_per_second
        yield Figure(
            f"{name}: goodput", 100 * requests, "%", f"of requests at capacity; of tokens {100 * tokens:.0f} %"
        )

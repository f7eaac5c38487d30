"""The serving engine the slow way: what happens next is looked for among everything, every step is one step, every sum
is added up anew. Times of chunks and steps are the timing's; what is decided, and when, is written here once more.

Requests have no cached prefixes. Seconds, tokens, bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

from infer_workload.layout.deployment import Deployment
from infer_workload.layout.recovery import LayoutChange

NODE_DIES = 16
AT_ONCE_S = 1e-9


@dataclass(eq=False)
class ReferenceRequest:
    """A request. `where`: waiting, prefill, moving, moved, joining, decode, finished, cancelled or dropped."""

    number: int
    at: float
    tokens_in: int
    tokens_out: int
    priority: int = 0
    where: str = "waiting"
    prompt: int = 0
    prefilled: int = 0
    generated: int = 0
    die: tuple[str, int] | None = None
    instance: Prefiller | None = None
    left_bytes: float = 0.0
    sent: int = 0
    there_at: float = inf
    steps: int = 0
    steps_done: int = 0
    had: int = 0
    kept: float = 0.0
    first_token_at: float = -1.0
    finished_at: float = -1.0

    @property
    def queue_key(self):
        return self.priority, self.at, self.number

    @property
    def size(self):
        return self.tokens_in + self.tokens_out


@dataclass(eq=False)
class Prefiller:
    number: int
    nodes: tuple[str, ...]
    ready_at: float
    queue: list[ReferenceRequest] = field(default_factory=list)
    chunk: list[tuple[ReferenceRequest, int]] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)
    began_at: float = 0.0
    ends_at: float = inf


class SlowEngine:
    def __init__(self, deployment: Deployment, seed: int = 0) -> None:
        self.deployment, self.now, self.rng = deployment, 0.0, Random(seed)
        self.requests: list[ReferenceRequest] = []
        self.made = self.sent = 0
        self.instances = [self.new_instance(nodes, 0.0) for nodes in deployment.pools.prefill]
        self.dies = dies_of(deployment.pools.decode)
        self.joining: list[ReferenceRequest] = []
        self.begins_at = self.ends_at = inf
        """When a decode step is to begin, or the present one, which began at `began_at`, ends."""
        self.began_at = self.paused_until = 0.0

    # What a caller does.

    def submit(self, request: ReferenceRequest) -> None:
        request.prompt = request.tokens_in
        self.requests.append(request)
        self.assign()

    def cancel(self, request: ReferenceRequest) -> None:
        if request.where not in ("finished", "cancelled", "dropped"):
            self.withdraw([request])
            request.where = "cancelled"
            self.assign()

    def apply(self, change: LayoutChange) -> None:
        timing, was = self.deployment.decode_timing(), self.deployment.pools.prefill
        before = {each: self.chunk_s(each) for each in self.instances if each.chunk}
        self.deployment, pools = change.deployment, change.deployment.pools
        gone = [each for each in self.instances if each.nodes not in pools.prefill]
        new = [nodes for nodes in pools.prefill if nodes not in was]
        lost = [
            each
            for each in self.requests
            if (each.die is not None and each.die[0] not in pools.decode)
            or (each.where in ("prefill", "moving", "moved", "joining") and each.instance in gone)
        ]
        for die in {each.die for each in self.requests if each.die is not None and each not in lost}:
            for each in sorted(self.placed(die, lost), key=lambda each: each.queue_key, reverse=True):
                if sum(other.size for other in self.placed(die, lost)) > self.deployment.kv_tokens_per_die:
                    lost.append(each)
        self.withdraw(lost)
        self.instances = [each for each in self.instances if each not in gone]
        self.instances += [self.new_instance(nodes, self.now + change.start_s) for nodes in new]
        for each in self.instances:
            if each.chunk and (takes := self.chunk_s(each)) != before[each]:
                part = (self.now - each.began_at) / before[each]
                each.began_at, each.ends_at = self.now - part * takes, self.now + (1 - part) * takes
        if self.ends_at < inf and timing is not None:
            part = (self.now - self.began_at) / (self.ends_at - self.began_at)
            takes = self.step_s()
            self.began_at, self.ends_at = self.now - part * takes, self.now + (1 - part) * takes
        known = {node for node, _ in self.dies}
        self.dies = [die for die in self.dies if die[0] in pools.decode]
        self.dies += dies_of(node for node in pools.decode if node not in known)
        if change.pause_s:
            self.paused_until = max(self.paused_until, self.now + change.pause_s)
            if self.ends_at < inf or self.begins_at < inf:
                self.begins_at, self.ends_at = self.paused_until, inf
        for each in self.requests:
            if each.where == "waiting" and each.size > self.deployment.context_length:
                each.where = "dropped"
        self.assign()

    def advance(self, until: float) -> None:
        """Everything up to that moment, one thing after the other: decode first, then transfers, then the rest."""
        while True:
            rates = self.rates()
            moving = [each for each in self.requests if each.where == "moving"]
            arrives_at = min((self.now + each.left_bytes / rates[each] for each in moving), default=inf)
            decode_at = min(self.begins_at, self.ends_at)
            chunk_at = min((each.ends_at for each in self.instances if each.chunk), default=inf)
            wake_at = min((each.ready_at for each in self.instances if each.queue and not each.chunk), default=inf)
            there_at = min((each.there_at for each in self.requests if each.where == "moved"), default=inf)
            at = min(decode_at, arrives_at, chunk_at, wake_at, there_at)
            if at > until or at == inf:
                self.progress(moving, rates, until)
                return
            self.progress(moving, rates, at)
            if decode_at <= at:
                self.decode()
            elif arrives_at <= at:
                for each in moving:
                    if each.left_bytes <= rates[each] * AT_ONCE_S:
                        each.where = "moved"
                        each.there_at = self.now + self.transfer_start_s()
            elif there_at <= at:
                moved = (each for each in self.requests if each.where == "moved")
                self.join(min(moved, key=lambda each: (each.there_at, each.sent)))  # at once: as they left their chunk
            elif chunk_at <= at:
                self.end_chunk(min((e for e in self.instances if e.chunk), key=lambda each: each.ends_at))
            else:
                self.start_chunk(min((e for e in self.instances if e.queue and not e.chunk), key=lambda e: e.ready_at))

    def progress(self, moving, rates, until) -> None:
        if until == inf:
            return
        for each in moving:
            each.left_bytes = max(0.0, each.left_bytes - rates[each] * (until - self.now))
        self.now = max(self.now, until)

    # Places.

    def placed(self, die, without=()):
        return [each for each in self.requests if each.die == die and each not in without]

    def has_room(self, die, request, without=()) -> bool:
        there = self.placed(die, without)
        full = len(there) >= self.deployment.batch_per_die
        return not full and sum(each.size for each in there) + request.size <= self.deployment.kv_tokens_per_die

    def in_time(self, die, request, without=()) -> bool:
        target = self.deployment.spec.tpot_target_s
        if target is None or not any(self.placed(each) for each in self.dies):
            return True

        def worst(placed):
            return max(map(len, placed)), max(sum(each.size for each in there) for there in placed)

        before = [self.placed(each) for each in self.dies]
        after = [*before, [*self.placed(die, without), request]]
        timing = self.deployment.decode_timing()

        def takes(placed):
            return timing.step_s(*worst(placed)) / timing.tokens_per_step

        if takes(after) <= target:
            return True
        mine = after[-1:]
        return worst(after) == worst(before) and (len(mine[0]) == 1 or takes(mine) <= target)

    def find_place(self, request):
        """A die, and who has to leave it."""
        roomy = [die for die in self.dies if self.has_room(die, request)]
        if roomy:
            die = min(roomy, key=lambda die: sum(each.size for each in self.placed(die)))
            if self.in_time(die, request):
                return die, []
        later = [each for each in self.requests if each.die is not None and each.priority > request.priority]
        gone = []
        for each in sorted(later, key=lambda each: each.queue_key, reverse=True):
            gone.append(each)
            there = [other for other in gone if other.die == each.die]
            if self.has_room(each.die, request, there) and self.in_time(each.die, request, there):
                return each.die, there
        return None

    def assign(self) -> None:
        while self.instances:
            waiting = [each for each in self.requests if each.where == "waiting"]
            if not waiting:
                return
            request = min(waiting, key=lambda each: each.queue_key)
            place = self.find_place(request)
            if place is None:
                return
            request.die, preempted = place
            die, request.die = request.die, None
            self.withdraw(preempted)
            request.die, request.where, request.prefilled = die, "prefill", 0
            instance = min(self.instances, key=lambda each: (self.before(each, request), each.number))
            request.instance = instance
            at = len(instance.queue)
            while at and instance.queue[at - 1].priority > request.priority and not instance.queue[at - 1].prefilled:
                at -= 1
            instance.queue.insert(at, request)
            if not instance.chunk and self.now >= instance.ready_at:
                self.start_chunk(instance)

    def before(self, instance, request) -> int:
        """Tokens that the instance computes before those of the request."""
        there = [each for each in self.requests if each.where == "prefill" and each.instance is instance]
        behind = [e for e in instance.queue if e.priority > request.priority and not e.prefilled]
        return sum(each.prompt - each.prefilled for each in there if each is not request and each not in behind)

    def withdraw(self, gone) -> None:
        for each in gone:
            if each.where == "decode":
                done = each.had + int((each.tokens_out - each.had) * each.steps_done / each.steps + 1e-9)
                each.generated = max(each.generated, min(done, each.tokens_out - 1))
            if each.instance is not None and each in each.instance.queue:
                each.instance.queue.remove(each)
            if each.instance is not None:
                each.instance.chunk = [(o, take) for o, take in each.instance.chunk if o is not each] or (
                    [(each, 0)] if each.instance.chunk else []
                )
        left = any(each.where == "decode" for each in gone)
        self.joining = [each for each in self.joining if each not in gone]
        for each in gone:
            each.where, each.die, each.instance, each.prefilled, each.there_at = "waiting", None, None, 0, inf
            each.prompt = each.tokens_in + each.generated
        if left:
            if not self.decoding:
                self.ends_at = inf
                self.begins_at = max(self.now, self.paused_until) if self.joining else inf
            elif self.ends_at < inf and self.now <= self.began_at + AT_ONCE_S:
                self.begins_at, self.ends_at = self.now, inf

    # Prefill.

    def new_instance(self, nodes, ready_at) -> Prefiller:
        self.made += 1
        return Prefiller(self.made, nodes, ready_at)

    def chunk_s(self, instance) -> float:
        at = self.deployment.pools.prefill.index(instance.nodes)
        return self.deployment.prefill_timing(at).chunk_s(instance.parts)

    def start_chunk(self, instance) -> None:
        room = self.deployment.calibration.prefill_tokens_per_npu * 8 * len(instance.nodes)
        instance.chunk = []
        while instance.queue and room:
            request = instance.queue.pop(0)
            take = min(room, request.prompt - request.prefilled)
            instance.chunk.append((request, take))
            room -= take
        instance.parts = [(take, request.prefilled) for request, take in instance.chunk]
        if instance.chunk:
            instance.began_at, instance.ends_at = self.now, self.now + self.chunk_s(instance)

    def end_chunk(self, instance) -> None:
        chunk, instance.chunk, instance.ends_at = instance.chunk, [], inf
        unfinished = []
        for request, take in chunk:
            if request.instance is not instance or not take:
                continue
            request.prefilled += take
            if request.prefilled < request.prompt:
                unfinished.append(request)
                continue
            request.generated += 1
            if request.first_token_at < 0:
                request.first_token_at = self.now
            if request.generated >= request.tokens_out:
                self.finish(request)
            else:
                request.where = "moving"
                self.sent += 1
                request.sent = self.sent
                request.left_bytes = request.prompt * self.deployment.model.kv_bytes_per_token
        instance.queue = unfinished + instance.queue
        self.assign()
        if not instance.chunk:
            self.start_chunk(instance)

    # Transfers.

    def transfer_start_s(self) -> float:
        current = self.deployment
        return current.calibration.transfer_request_ms * 1e-3 + current.fabric.latency_s("rdma")

    def rates(self) -> dict[ReferenceRequest, float]:
        """Bytes a second of each transfer: the smallest share is given out first, whoever cannot use more is done."""
        current = self.deployment
        going = [each for each in self.requests if each.where == "moving"]
        efficiency = current.calibration.rdma_efficiency * 1e9
        ports = {}
        for each in going:
            ports[each.die] = current.fabric.die_gbps("rdma", each.die[0], 1, into=True) * efficiency
            nodes = each.instance.nodes
            ports[each.instance] = sum(current.fabric.node_gbps("rdma", node) for node in nodes) * efficiency
        rates = {}
        while len(rates) < len(going):
            users = {port: [e for e in going if e not in rates and port in (e.die, e.instance)] for port in ports}
            narrowest = min((p for p in ports if users[p]), key=lambda port: ports[port] / len(users[port]))
            share = ports[narrowest] / len(users[narrowest])
            for each in users[narrowest]:
                rates[each] = share
                for port in (each.die, each.instance):
                    ports[port] -= share
        return rates

    # Decode.

    @property
    def decoding(self):
        return [each for each in self.requests if each.where == "decode"]

    def join(self, request) -> None:
        request.there_at, request.where = inf, "joining"
        self.joining.append(request)
        if self.ends_at < inf:
            if self.now <= self.began_at + AT_ONCE_S:
                self.begins_at, self.ends_at = self.now, inf
        elif self.begins_at == inf:
            self.begins_at = max(self.now, self.paused_until)

    def step_s(self) -> float:
        dies = [[each for each in self.decoding if each.die == die] for die in {each.die for each in self.decoding}]
        fullest, longest = max(map(len, dies)), max(sum(each.kept for each in there) for there in dies)
        return self.deployment.decode_timing().step_s(fullest, longest)

    def decode(self) -> None:
        """A step ends, or one is to begin."""
        finished = []
        if self.ends_at <= self.begins_at:
            for each in self.decoding:
                each.steps_done += 1
                each.kept += self.deployment.decode_timing().tokens_per_step
            finished = [each for each in self.decoding if each.steps_done == each.steps]
            for each in finished:
                each.where = "done"
        for each in self.joining:
            each.where, each.kept, each.steps_done, each.had = "decode", float(each.prompt), 0, each.generated
            each.steps = self.steps_for(each.tokens_out - each.generated)
        self.joining = []
        self.begins_at = self.ends_at = inf
        if self.decoding:
            self.began_at, self.ends_at = self.now, self.now + self.step_s()
        for each in finished:
            self.finish(each)
        self.assign()

    def steps_for(self, tokens: int) -> int:
        timing = self.deployment.decode_timing()
        if not timing.options.mtp:
            return tokens
        rate = timing.acceptance
        spread = (tokens * rate * (1 - rate) / (1 + rate) ** 3) ** 0.5
        return min(tokens, max(-(-tokens // 2), round(self.rng.gauss(tokens / (1 + rate), spread)), 1))

    def finish(self, request) -> None:
        request.where, request.die, request.instance = "finished", None, None
        request.generated, request.finished_at = request.tokens_out, self.now


def dies_of(nodes):
    return [(node, index) for node in nodes for index in range(NODE_DIES)]

"""Planner: answers questions about requests that have not been made. It reads the ledger and writes nothing."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Literal

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.quantities import pluralized, timestamp
from matrixcommon.persistence.searches import search
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.refusals import blocking_constraint, describe_obstacle, does_not_fit
from matrixresource.allocations.request_checks import check_placement
from matrixresource.contract.plans import FragmentationView, PlanChange, PlanDomain, PlanLoss, PlanRequest, PlanView
from matrixresource.scheduler.explain import explain
from matrixresource.scheduler.explain.explain import DomainDiagnosis, Suggestion
from matrixresource.scheduler.metrics.capacity_metrics import largest_blocks
from matrixresource.store.store import ResourceStore
from matrixresource.store.topology_versions import checked_version, current_version, observed_supernodes

KINDS: dict[str, Literal["Fewer", "Relax", "Release", "Preempt", "Move"]] = {
    "fewer": "Fewer",
    "relax": "Relax",
    "release": "Release",
    "move": "Move",
    "preempt": "Preempt",
}
CONSTRAINT_FIELDS = {
    "within": "placement.required",
    "spread": "placement.policy",
    "anti_affinity": "antiAffinity",
    "affinity": "affinity",
    "spares": "spares",
    "block": "placement.blocks",
    "cell": "placement.blocks",
    "avoid": "excludeNodes",
}


class Planner:
    """Plans and fragmentation over one store."""

    def __init__(self, store: ResourceStore, ledger: LedgerSync, clock: Clock) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock

    def plan(self, request: PlanRequest) -> PlanView:
        """Whether a new allocation would fit now. Raises StaleTopology if the request was made for another topology."""
        with self._store.reading() as session:
            version = checked_version(session, request.topology_version)
            check_placement(request)
            ledger = self._ledger.open(session)
            allocation_request = self._ledger.placement_request(request, self._clock.now())
            topologies = [each.topology for each in observed_supernodes(session).values()]
            find = partial(
                explain.explain_placement, request=allocation_request, now=self._clock.now(), topologies=topologies
            )
            answer = search(
                "plan", find, ledger, lambda found: found.place is None or ledger.index.is_unallocated(found.place)
            )
            view = PlanView(
                fits=answer.place is not None,
                topology_version=version,
                nodes=allocation_request.nodes,
                npus=allocation_request.npus,
                spares=allocation_request.spares,
                blast_radius=[PlanLoss.model_validate(loss) for loss in answer.blast_radius],
                earliest_start=None if answer.earliest_start is None else timestamp(answer.earliest_start),
            )
            if answer.place is not None:
                parts = self._ledger.parts(answer.place)
                view.members = [*self._ledger.nodes(answer.place), *(name for name, part in parts.items() if part.dies)]
                view.spare_nodes = [*self._ledger.spares(answer.place)]
                view.pool_nodes = [name for name, part in parts.items() if part.cpus or part.memory_gib]
                return view
            reason = blocking_constraint(self._ledger, allocation_request)
            view.message = f"{does_not_fit(allocation_request, ledger.shape.npus)}: {reason}"
            view.blocking = self._blocking(session, answer.diagnoses)
            view.changes = [self._change_view(change) for change in answer.suggestions]
            if allocation_request.preempts:
                view.preempts = [name for each in view.changes if each.kind == "Preempt" for name in each.allocations]
                view.fits = bool(view.preempts)
            return view

    def fragmentation(self) -> FragmentationView:
        """How free nodes are distributed."""
        with self._store.reading() as session:
            index = self._ledger.open(session).index
            whole = [mask.bit_count() for mask in index.whole]
            return FragmentationView(
                topology_version=current_version(session),
                nodes=len(self._ledger.numbers),
                free_nodes=sum(whole),
                free_npus=sum(dies.bit_count() for dies, up in zip(index.dies, index.up, strict=True) if up) / 2,
                largest_block={over: most for over, most in largest_blocks(index).items() if over},
                cabinets_with_block_of={
                    str(size): sum(free >= size for free in whole) for size in range(1, index.nodes + 1)
                },
                supernodes_with_block_of={
                    str(size): sum(free >= size for free in index.whole_counts)
                    for size in range(index.nodes, index.shape.nodes_per_supernode + 1, index.nodes)
                },
            )

    def _blocking(self, session: Session, domains: tuple[DomainDiagnosis, ...]) -> list[PlanDomain]:
        """The domains by name, with the obstacles on their nodes in words."""
        rows = {row.name: row for row in self._store.nodes(session)}
        found = []
        shape = self._ledger.ledger.shape
        for domain in domains:
            size = shape.nodes if domain.over == "cabinet" else shape.nodes_per_supernode
            names = [name for name in self._ledger.names[domain.number * size : (domain.number + 1) * size] if name]
            if not names:
                continue
            reasons = Counter(why for name in names if (why := describe_obstacle(rows[name])))
            rules = {
                rule: count
                for rule, count in domain.obstacles.items()
                if rule in ("anti_affinity", "affinity", "spread", "promised", "avoid")
            }
            name = names[0].cabinet if domain.over == "cabinet" else names[0].supernode
            level = "cabinet" if domain.over == "cabinet" else "supernode"
            reasons.update({rule.capitalize(): count for rule, count in rules.items()})
            found.append(
                PlanDomain(domain=name, level=level, room=domain.room, short=domain.short, reasons=dict(reasons))
            )
        return found

    def _change_view(self, change: Suggestion) -> PlanChange:
        rule, to = CONSTRAINT_FIELDS.get(change.rule), change.to
        names = ", ".join(change.names)
        fewer = pluralized(change.nodes, "node") if change.nodes else f"{change.cpus} CPU sockets and {change.mem} GiB"
        message = {
            "fewer": f"{fewer} would fit",
            "relax": f"it would fit with {rule} changed to {to}" if to else f"it would fit without {rule}",
            "release": f"it would fit without {names} ({pluralized(change.npus, 'NPU')})",
            "move": f"it would fit after moving {names} ({pluralized(change.npus, 'NPU')})",
            "preempt": f"with `preemption: LowerPriority` it would preempt {names} ({pluralized(change.npus, 'NPU')})",
        }[change.kind]
        return PlanChange(
            kind=KINDS[change.kind],
            nodes=change.nodes or None,
            npus=change.npus or None,
            cpus=change.cpus or None,
            memory_gib=change.mem or None,
            rule=rule,
            to=to or None,
            exact=change.exact,
            allocations=list(change.names),
            message=message,
        )

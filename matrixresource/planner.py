"""Planner: the questions about requests that nobody has made yet. It reads the books and writes nothing."""

from __future__ import annotations

from collections import Counter

from sqlalchemy.orm import Session

from matrixresource.books import Books
from matrixresource.capacity import planning, preempting
from matrixresource.capacity.planning import Change, Domain
from matrixresource.capacity.wishes import Wish
from matrixresource.plan_contract import FragmentationView, PlanChange, PlanDomain, PlanRequest, PlanView
from matrixresource.refusals import asked, why
from matrixresource.store import NodeRow, ResourceStore
from matrixresource.topology.versions import matches
from matrixresource.topology_history import current_version
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import StaleTopology
from matrixresource.vocabulary.quantities import timestamp

KINDS = {"fewer": "Fewer", "relax": "Relax", "release": "Release", "move": "Move"}
RULES = {
    "within": "placement.required",
    "spread": "placement.policy",
    "apart": "apart",
    "near": "near",
    "spares": "spares",
    "block": "placement.blocks",
    "cell": "placement.blocks",
    "avoid": "excludeNodes",
}


class Planner:
    """Plans and fragmentation over one store."""

    def __init__(self, store: ResourceStore, books: Books, clock: Clock) -> None:
        self._store = store
        self._books = books
        self._clock = clock

    def plan(self, request: PlanRequest) -> PlanView:
        """Whether a new allocation would fit now. Raises StaleTopology when it was meant for another topology."""
        with self._store.reading() as session:
            version = current_version(session)
            if request.topology_version and not matches(request.topology_version, version):
                text = f"the topology is {version!r} by now; plan anew on that version"
                raise StaleTopology(text, field="topologyVersion")
            ledger = self._books.open(session)
            wish = self._books.wish(request, self._clock.now())
            answer = planning.answer(ledger, wish, self._clock.now())
            view = PlanView(
                fits=answer.place is not None,
                topology_version=version,
                nodes=wish.nodes,
                npus=wish.npus,
                spares=wish.spares,
                blast_radius=dict(answer.radius),
                earliest_start=None if answer.earliest is None else timestamp(answer.earliest),
            )
            if answer.place is not None:
                parts = self._books.parts(answer.place)
                view.members = [*self._books.nodes(answer.place), *(name for name, part in parts.items() if part.dies)]
                view.spare_nodes = [*self._books.spares(answer.place)]
                view.pool_nodes = [name for name, part in parts.items() if part.cpus or part.memory_gib]
                return view
            view.message = f"{asked(wish)} do not fit: {why(self._books, wish)}"
            view.blocking = self._blocking(session, answer.why)
            view.changes = [self._told(change, wish) for change in answer.changes]
            victims = preempting.victims(ledger, wish, self._clock.now())
            if victims:
                view.changes.append(self._preemption(victims))
                if wish.preempts:
                    view.fits, view.preempts = True, sorted(victims)
            return view

    def fragmentation(self) -> FragmentationView:
        """How the free nodes lie."""
        with self._store.reading() as session:
            index = self._books.open(session).index
            whole = [mask.bit_count() for mask in index.whole]
            return FragmentationView(
                topology_version=current_version(session),
                nodes=len(self._books.numbers),
                free_nodes=sum(whole),
                free_npus=sum(dies.bit_count() for dies, up in zip(index.dies, index.up, strict=True) if up) / 2,
                largest_block={"cabinet": max(whole, default=0), "supernode": index.most_left()},
                cabinets_with_block_of={
                    str(size): sum(free >= size for free in whole) for size in range(1, index.nodes + 1)
                },
                supernodes_with_block_of={
                    str(size): sum(free >= size for free in index.left)
                    for size in range(index.nodes, index.shape.of_supernode + 1, index.nodes)
                },
            )

    def _blocking(self, session: Session, domains: tuple[Domain, ...]) -> list[PlanDomain]:
        """The domains by name, what stands in the way in the words of the nodes."""
        rows = {row.name: row for row in self._store.nodes(session)}
        found = []
        shape = self._books.ledger.shape
        for domain in domains:
            size = shape.nodes if domain.over == "cabinet" else shape.of_supernode
            names = [name for name in self._books.names[domain.number * size : (domain.number + 1) * size] if name]
            if not names:
                continue
            reasons = Counter(why for why in map(_obstacle, (rows[name] for name in names)) if why)
            rules = {rule: count for rule, count in domain.obstacles.items() if rule in ("apart", "near", "spread")}
            name = names[0].cabinet if domain.over == "cabinet" else names[0].supernode
            level = "cabinet" if domain.over == "cabinet" else "supernode"
            reasons.update({rule.capitalize(): count for rule, count in rules.items()})
            found.append(
                PlanDomain(domain=name, level=level, room=domain.room, short=domain.short, reasons=dict(reasons))
            )
        return found

    def _told(self, change: Change, wish: Wish) -> PlanChange:
        told = PlanChange(
            kind=KINDS[change.kind],
            nodes=change.nodes or None,
            npus=change.npus or None,
            rule=RULES.get(change.rule),
            allocations=list(change.names),
            message="",
        )
        names = ", ".join(change.names)
        told.message = {
            "fewer": f"{change.nodes} nodes would fit",
            "relax": f"it would fit without {told.rule}",
            "release": f"it would fit without {names}, which hold {change.npus:g} NPUs",
            "move": f"it would fit after moving {names} ({change.npus:g} NPUs)",
        }[change.kind]
        return told

    def _preemption(self, victims: list[str]) -> PlanChange:
        npus = sum(self._books.ledger.held[name].wish.npus for name in victims)
        message = f"with preemption LowerPriority it would put out {', '.join(sorted(victims))} ({npus:g} NPUs)"
        return PlanChange(kind="Preempt", npus=npus, allocations=sorted(victims), message=message)


def _obstacle(row: NodeRow) -> str | None:
    return row.obstacle()

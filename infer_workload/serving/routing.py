"""Which deployment a completion is for: named by itself, or by the model that it wants served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from infer_workload.serving.live.live_deployment import LiveDeployment
from matrixcommon.model.errors import NotFound
from matrixcommon.model.resource_key import project_of, reference, resolve

Sees = Callable[[str], bool]


@dataclass(frozen=True)
class Offer:
    """Something that a completion may name as its model, and who would serve it."""

    id: str
    deployments: tuple[LiveDeployment, ...]

    @property
    def root(self) -> str:
        """The model itself."""
        return self.deployments[0].spec.model

    @property
    def context_length(self) -> int:
        """The longest prompt and answer together that any of them takes; 0 while none of them is laid out."""
        return max(live.layout.pools_view().context_length for live in self.deployments)


def candidates(lives: Mapping[str, LiveDeployment], model: str, project: str, sees: Sees) -> list[LiveDeployment]:
    """The deployments that may serve what a request of `project` calls `model`, the best first: those that serve, with
    the least to do for their size, before those that requests may wait for.

    A deployment's name stands for itself. A model's stands for all deployments of the project that serve it; for a
    caller who sees other projects and has none of its own, for theirs. Raises NotFound.
    """
    key = resolve(model, project)
    if key in lives and sees(project_of(key)):
        return [lives[key]]
    same = [live for name, live in lives.items() if live.spec.model == model and sees(project_of(name))]
    own = [live for live in same if project_of(live.name) == project]
    if not same:
        raise NotFound(f"no deployment is called {model[:80]!r} or serves a model of that name", field="model")
    return sorted(own or same, key=_rank)


def offers(lives: Iterable[LiveDeployment], project: str, sees: Sees) -> list[Offer]:
    """All that a caller may name: the deployments that it sees, and the models that they serve."""
    shown = sorted((live for live in lives if sees(project_of(live.name))), key=lambda live: live.name)
    found: dict[str, tuple[LiveDeployment, ...]] = {reference(live.name, project): (live,) for live in shown}
    for model in sorted({live.spec.model for live in shown}):
        found.setdefault(model, tuple(live for live in shown if live.spec.model == model))
    return [Offer(id, deployments) for id, deployments in found.items()]


def _rank(live: LiveDeployment) -> tuple[int, float, str]:
    if live.serves and live.engine is not None:
        return 0, len(live.engine.in_flight) / max(1, live.engine.deployment.pools.npus), live.name
    return (1 if live.activation.holds(live) else 2), float(live.activation.waiting), live.name

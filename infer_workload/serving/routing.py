"""Routing of completions to deployments, by the name of a deployment or of its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from infer_workload.serving.live.live_deployment import LiveDeployment
from matrixcommon.model.errors import NotFound
from matrixcommon.model.resource_key import project_of, reference_to, resolve

CanView = Callable[[str], bool]


@dataclass(frozen=True)
class Offer:
    """A name that a completion may give as its model, and the deployments that would serve it."""

    id: str
    deployments: tuple[LiveDeployment, ...]

    @property
    def root(self) -> str:
        """The name of the model."""
        return self.deployments[0].spec.model

    @property
    def context_length(self) -> int:
        """The longest prompt plus answer that any of them accepts, in tokens; 0 while none is laid out."""
        return max(live.layout.pools_view().context_length for live in self.deployments)


def candidates(
    live_deployments: Mapping[str, LiveDeployment], model: str, project: str, sees: CanView
) -> list[LiveDeployment]:
    """The deployments that may serve the `model` of a request from `project`, the best first: serving ones, the least
    loaded for their size first, then those that requests may wait for.

    The name of a deployment selects it alone. The name of a model selects the project's deployments that serve it; if
    it has none, those of the other projects that the caller sees. Raises NotFound.
    """
    key = resolve(model, project)
    if key in live_deployments and sees(project_of(key)):
        return [live_deployments[key]]
    same = [live for name, live in live_deployments.items() if live.spec.model == model and sees(project_of(name))]
    own = [live for live in same if project_of(live.name) == project]
    if not same:
        raise NotFound(f"model {model[:80]!r} does not exist: no deployment has or serves that name", field="model")
    return sorted(own or same, key=_rank)


def offers(live_deployments: Iterable[LiveDeployment], project: str, sees: CanView) -> list[Offer]:
    """Every name that a caller may use: the deployments that it sees, and the models that they serve."""
    shown = sorted((live for live in live_deployments if sees(project_of(live.name))), key=lambda live: live.name)
    found: dict[str, tuple[LiveDeployment, ...]] = {reference_to(live.name, project): (live,) for live in shown}
    for model in sorted({live.spec.model for live in shown}):
        found.setdefault(model, tuple(live for live in shown if live.spec.model == model))
    return [Offer(id, deployments) for id, deployments in found.items()]


def _rank(live: LiveDeployment) -> tuple[int, float, str]:
    if live.serves and live.engine is not None:
        return 0, len(live.engine.in_flight) / max(1, live.engine.deployment.pools.npus), live.name
    return (1 if live.activation.holds_requests(live) else 2), float(live.activation.waiting), live.name

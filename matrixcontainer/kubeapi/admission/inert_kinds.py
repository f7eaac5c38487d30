"""Warn clients that create objects of kinds that are stored and served, but that nothing here acts on.

A StatefulSet that is accepted without a word looks like one whose pods are slow to start.
"""

from typing import Any

from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource

CONSEQUENCES = {
    "statefulsets.apps": "no pods are created; Deployments, DaemonSets and Jobs create theirs",
    "replicationcontrollers": "no pods are created; Deployments, DaemonSets and Jobs create theirs",
    "cronjobs.batch": "no Jobs are created on its schedule; `kubectl create job NAME --from=cronjob/NAME` creates one",
    "persistentvolumeclaims": "no volume is bound; pods start without it",
    "ingresses.networking.k8s.io": "no traffic is routed",
    "networkpolicies.networking.k8s.io": "no traffic is filtered",
}
"""What does not happen for objects of these resources."""


async def warn_of_inert_kind(
    resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
) -> None:
    """Admission plugin that adds the warning to a client's create."""
    consequence = CONSEQUENCES.get(resource.storage)
    if consequence and verb == "CREATE" and not options.from_controller:
        options.warnings.append(f"nothing here acts on {resource.plural}: stored and served, but {consequence}")

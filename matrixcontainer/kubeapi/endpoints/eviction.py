"""Eviction: a delete that checks the pod's disruption budget first and decrements its allowed disruptions.

Pods that have finished, are pending or are being deleted can be evicted freely. A pod with two budgets is refused.
Contract: public documentation "API-initiated Eviction".
"""

from typing import Any

from matrixcontainer.kubeapi.builtin.disruption_budgets import BUDGETS, is_ready, selects, status_options
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Deletion, Options
from matrixcontainer.kubeapi.registry.resource import Resource

RETRY_AFTER_S = 10
MULTIPLE_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


async def evict(
    core: Core, resource: Resource, namespace: str, name: str, body: dict[str, Any], options: Options
) -> None:
    """Delete the pod if its budget allows it. Raises 429 with the reason if not."""
    requested_name = (body.get("metadata") or {}).get("name") or name
    if requested_name != name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    delete_options = body.get("deleteOptions") or {}
    conditions = delete_options.get("preconditions") or {}
    request = Deletion(
        propagation=delete_options.get("propagationPolicy") or "",
        grace_s=delete_options.get("gracePeriodSeconds"),
        uid=conditions.get("uid") or "",
        revision=conditions.get("resourceVersion") or "",
        dry_run=options.dry_run or "All" in (delete_options.get("dryRun") or []),
    )
    pod = core.verbs.get(resource, namespace, name)
    if not can_ignore_pdb(pod):
        budgets = [record for record in core.store.objects_of(BUDGETS, namespace) if selects(record.obj, pod)]
        if len(budgets) > 1:
            raise ApiError(500, "InternalError", MULTIPLE_BUDGETS)
        if budgets and not is_unhealthy(pod, budgets[0].obj):
            await check_and_decrement(core, namespace, budgets[0].key[2], name, request.dry_run)
    await core.verbs.delete(resource, namespace, name, request, options)


def can_ignore_pdb(pod: dict[str, Any]) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def is_unhealthy(pod: dict[str, Any], budget: dict[str, Any]) -> bool:
    """Whether an unready pod may be evicted without decrementing the budget."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


async def check_and_decrement(core: Core, namespace: str, budget: str, pod: str, dry_run: bool) -> None:
    """Take one allowed disruption from the budget. Raises 429 if there is none left, also on a concurrent eviction."""
    resource = core.builtin("policy", "poddisruptionbudgets")

    def change(obj: dict[str, Any]) -> dict[str, Any]:
        status = obj.get("status") or {}
        if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
            raise _too_many_requests(
                f"The disruption budget {budget} is still being processed by the server.", RETRY_AFTER_S
            )
        if status.get("disruptionsAllowed", 0) < 1:
            needed, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            raise _too_many_requests(
                f"The disruption budget {budget} needs {needed} healthy pods and has {current} currently"
            )
        disrupted = (status.get("disruptedPods") or {}) | {pod: timestamp(core.now())}
        left = status["disruptionsAllowed"] - 1
        return obj | {"status": status | {"disruptionsAllowed": left, "disruptedPods": disrupted}}

    options = status_options()
    options.dry_run = dry_run
    await core.verbs.modify(resource, namespace, budget, change, options)


def _too_many_requests(message: str, retry_after_s: int = 0) -> ApiError:
    """The 429. Retry-After makes client libraries retry silently, so it is set only for a budget not yet processed."""
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    failure = ApiError(429, "TooManyRequests", text, details)
    if retry_after_s:
        failure.headers["Retry-After"] = str(retry_after_s)
    return failure

"""Refuse new pods of a service account that does not exist, as upstream's ServiceAccount admission plugin does.

The account `default` counts as existing: each namespace is given one, a moment after it is created.
"""

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.writer import AdmissionPlugin
from matrixcontainer.kubeapi.storage.store import Store

DEFAULT = "default"


def check_service_account(store: Store) -> AdmissionPlugin:
    """Admission plugin that looks up a new pod's service account."""

    async def admit(
        resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> None:
        if resource.storage != "pods" or verb != "CREATE" or new is None:
            return
        namespace, account = new["metadata"].get("namespace", ""), new["spec"].get("serviceAccountName") or DEFAULT
        if account != DEFAULT and store.get(("serviceaccounts", namespace, account)) is None:
            message = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise errors.forbidden("pods", "", new["metadata"].get("name", ""), message)

    return admit

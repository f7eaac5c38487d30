"""Resources that nobody stores: registered like others, computed each time they are asked for."""

from typing import Any

from matrixcontainer.kubeapi.codec.negotiation import choose
from matrixcontainer.kubeapi.endpoints.request import Request
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.table import TableForm
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.resource import Resource


def list_or_table(core: Core, request: Request, resource: Resource, items: list[dict[str, Any]]) -> Response:
    """The items as a list or as a Table, as the client wants it."""
    meta = {"resourceVersion": str(core.store.revision)}
    if choose(request.accept).form == "Table":
        form = TableForm(resource, request.query.get("includeObject", ""), core.now)
        return as_json(form.table(items, meta))
    kind = resource.list_kind
    return as_json({"kind": kind, "apiVersion": resource.api_version, "metadata": meta, "items": items})

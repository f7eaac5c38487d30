"""Resources that nobody stores: registered like others, answered from something else each time they are asked for."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.codec.negotiation import choose
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.table import TableForm

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.endpoints.app import App
    from matrixcontainer.kubeapi.endpoints.request import Request
    from matrixcontainer.kubeapi.registry.resource import Resource

Obj = dict[str, Any]


def listed(
    app: "App",
    request: "Request",
    resource: "Resource",
    items: list[Obj],
    printed: Callable[[Obj], Obj] = lambda obj: obj,
) -> Response:
    """The items as a list, or as a Table of what `printed` makes of each, as the client wants it."""
    meta = {"resourceVersion": str(app.api.store.revision)}
    if choose(request.accept).form == "Table":
        form = TableForm(resource, request.query.get("includeObject", ""), app.api.now)
        return as_json(form.table([printed(item) for item in items], meta))
    kind = resource.list_kind
    return as_json({"kind": kind, "apiVersion": resource.api_version, "metadata": meta, "items": items})

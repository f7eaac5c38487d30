"""What a request wants to do, in the words of rules, and how it is told that it may not."""

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.access import User
from matrixcontainer.kubeapi.requests import Request, Target, parse_target

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def verb_of(method: str, target: Target, watching: bool) -> str:
    """What a request on a resource is called in rules and refusals."""
    if method in VERBS:
        return VERBS[method]
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    if watching or target.watch:
        return "watch"
    return "get" if target.name else "list"


def refusal(user: User, request: Request) -> errors.ApiError:
    """403 in the words clients know, naming who may not do what, and where."""
    target = parse_target(request.path)
    if target is None:
        text = f'forbidden: User "{user.name}" cannot {request.method.lower()} path "{request.path}"'
        return errors.ApiError(403, "Forbidden", text, {})
    verb = verb_of(request.method, target, request.flag("watch"))
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    place = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{target.group}" {place}'
    return errors.forbidden(target.plural, target.group, target.name, why)

"""Access reviews: TokenReview, SubjectAccessReview and the like, answered by the same code that enforces access."""

from typing import Any

from matrixcontainer.kubeapi.auth.authentication import TokenAuthenticator, User
from matrixcontainer.kubeapi.auth.authorizer import MASTERS, Attributes, Authorizer, Rule, compile_rule
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause

AUTHORIZATION = "authorization.k8s.io"
EXACTLY_ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
ALL_RULES = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


def answer_review(
    kind: str,
    body: dict[str, Any],
    namespace: str,
    user: User,
    authenticator: TokenAuthenticator,
    authorizer: Authorizer,
) -> dict[str, Any]:
    """Return the review with its status. Raises 422 for an invalid one."""
    spec = body.get("spec") or {}
    if kind == "SelfSubjectReview":
        return body | {"status": {"userInfo": user.info()}}
    if kind == "TokenReview":
        found, audiences = authenticator.review_token(spec.get("token", ""), spec.get("audiences") or ())
        status: dict[str, Any] = {"authenticated": found is not None}
        status |= {"user": found.info(), "audiences": audiences} if found else {"user": {}, "error": "unknown token"}
        return body | {"status": status}
    if kind == "SelfSubjectRulesReview":
        return body | {"status": _rules_status(authorizer, user, spec)}
    causes = _validate_spec(kind, spec, body, namespace)
    if causes:
        raise errors.unprocessable("", AUTHORIZATION, "", causes)  # without a kind, as upstream does
    if kind != "SelfSubjectAccessReview":
        groups = tuple(spec.get("groups") or spec.get("group") or ())
        user = User(spec.get("user", ""), groups, spec.get("uid", ""), spec.get("extra") or {})
    decision = authorizer.decide(user, _attributes(spec))
    status = {"allowed": decision.allowed}
    return body | {"status": status | ({"reason": decision.reason} if decision.reason else {})}


def _validate_spec(kind: str, spec: dict[str, Any], body: dict[str, Any], namespace: str) -> list[Cause]:
    causes = []
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        causes.append(
            errors.invalid(
                "spec.nonResourceAttributes",
                path,
                f"cannot be specified in combination with resourceAttributes: {EXACTLY_ONE_OF}",
            )
        )
    elif resource is None and path is None:
        causes.append(errors.invalid("spec.resourceAttributes", "null", EXACTLY_ONE_OF))
    if kind != "SelfSubjectAccessReview" and not (spec.get("user") or spec.get("groups")):
        causes.append(errors.invalid("spec.user", "", "at least one of user or group must be specified"))
    if kind == "LocalSubjectAccessReview" and resource is not None and resource.get("namespace", "") != namespace:
        text = "must match metadata.namespace"
        causes.append(errors.invalid("spec.resourceAttributes.namespace", resource.get("namespace", ""), text))
    return causes


def _attributes(spec: dict[str, Any]) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return Attributes(path.get("verb", ""), path=path.get("path", "") or "/")
    resource = spec["resourceAttributes"]
    fields = {key: resource.get(key) or "" for key in ("group", "resource", "subresource", "namespace", "name")}
    return Attributes(resource.get("verb", ""), **fields)


def _rules_status(authorizer: Authorizer, user: User, spec: dict[str, Any]) -> dict[str, Any]:
    """All rules that apply in the namespace."""
    if MASTERS in user.groups:
        rules = [compile_rule(reported) for reported in ALL_RULES]
    else:
        rules = list(authorizer.bound_rules(user).rules(spec.get("namespace", "")))
    return {
        "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules if rule.paths
        ],
        "incomplete": False,
    }


def _resource_rule(rule: Rule) -> dict[str, Any]:
    causes = {"verbs": sorted(rule.verbs), "apiGroups": sorted(rule.groups), "resources": sorted(rule.resources)}
    return causes | ({"resourceNames": sorted(rule.names)} if rule.names else {})

"""RBAC authorization: roles and bindings, compiled once and evaluated for every request.

`Authorizer.decide` evaluates the committed RBAC objects: members of system:masters may do anything, others what a
binding to them or to one of their groups grants. Rules are compiled per user, and both rules and decisions are cached
until a role or binding changes. The cache of decisions is bounded in number and excludes long names, because clients
can ask about anything. Reviews, impersonation and the escalation check use the same evaluation. Contract: public
documentation "Using RBAC Authorization".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.storage.objects import Change, Record
from matrixcontainer.kubeapi.storage.store import Store

GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS = f"roles.{GROUP}", f"rolebindings.{GROUP}"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"clusterroles.{GROUP}", f"clusterrolebindings.{GROUP}"
GROUP_RESOURCES = frozenset((ROLES, BINDINGS, CLUSTER_ROLES, CLUSTER_BINDINGS))
MASTERS = "system:masters"
DECISIONS_MAX, USERS_MAX = 4096, 1024  # cached
CACHED_CHARS_MAX = 512  # of the attributes of a cached decision


class Attributes(NamedTuple):
    """The attributes of a request: a verb on a resource or, with `path`, on a non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def qualified_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def size(self) -> int:
        return sum(map(len, self))


@dataclass(frozen=True)
class Rule:
    """A policy rule as sets, with the reason given for what it allows."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: tuple[str, ...]
    reason: str = ""

    def allows(self, attributes: Attributes) -> bool:
        if "*" not in self.verbs and attributes.verb not in self.verbs:
            return False
        if attributes.path:
            return any(_path_matches(pattern, attributes.path) for pattern in self.paths)
        if "*" not in self.groups and attributes.group not in self.groups:
            return False
        if self.names and attributes.name not in self.names:
            return False
        return (
            "*" in self.resources
            or attributes.qualified_resource in self.resources
            or bool(attributes.subresource and f"*/{attributes.subresource}" in self.resources)
        )


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def compile_rule(document: dict[str, Any], reason: str = "") -> Rule:
    def words(key: str) -> frozenset[str]:
        return frozenset(document.get(key) or ())

    paths = tuple(document.get("nonResourceURLs") or ())
    return Rule(words("verbs"), words("apiGroups"), words("resources"), words("resourceNames"), paths, reason)


@dataclass(frozen=True)
class Decision:
    allowed: bool
    reason: str = ""


class Authorizer:
    """Register `on_change` as a listener of the store; it invalidates the caches."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.bound_rules = lru_cache(USERS_MAX)(self._compile)
        self._cached_decide = lru_cache(DECISIONS_MAX)(self._decide)

    def on_change(self, change: Change) -> None:
        if change.record.key[0] in GROUP_RESOURCES:
            self.bound_rules.cache_clear()
            self._cached_decide.cache_clear()

    def decide(self, user: User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return Decision(True)
        return (self._cached_decide if attributes.size <= CACHED_CHARS_MAX else self._decide)(user, attributes)

    def _decide(self, user: User, attributes: Attributes) -> Decision:
        current = self.bound_rules(user)
        for rule in current.rules(attributes.namespace if not attributes.path else ""):
            if rule.allows(attributes):
                return Decision(True, rule.reason)
        missing = current.missing.get("", []) + (
            current.missing.get(attributes.namespace, []) if attributes.namespace else []
        )
        text = ", ".join(missing)
        return Decision(False, f"RBAC: {text if len(missing) < 2 else f'[{text}]'}" if missing else "")

    def allows(self, user: User, attributes: Attributes) -> bool:
        return self.decide(user, attributes).allowed

    def require(self, user: User, attributes: Attributes) -> None:
        """Raise 403, worded as upstream does, unless allowed."""
        decision = self.decide(user, attributes)
        if not decision.allowed:
            raise forbidden_error(user, attributes, decision.reason)

    def _compile(self, user: User) -> "BoundRules":
        current = BoundRules({}, {})
        for record in (*self.store.objects_of(CLUSTER_BINDINGS), *self.store.objects_of(BINDINGS)):
            binding, namespace = record.obj, record.key[1]
            subject = next((s for s in binding.get("subjects") or [] if _subject_matches(user, s, namespace)), None)
            if subject is None:
                continue
            reason = _allow_reason(record, binding, subject)
            try:
                rules = self.resolve_role_ref(binding.get("roleRef") or {}, namespace)
            except LookupError as failure:
                current.missing.setdefault(namespace, []).append(str(failure.args[0]))
                continue
            current.by_namespace.setdefault(namespace, []).extend(compile_rule(document, reason) for document in rules)
        return current

    def resolve_role_ref(self, role: dict[str, Any], namespace: str) -> list[dict[str, Any]]:
        """The rules of a roleRef. Raises LookupError if the role does not exist."""
        cluster = role.get("kind") == "ClusterRole"
        name = role.get("name", "")
        record = self.store.get((CLUSTER_ROLES, "", name) if cluster else (ROLES, namespace, name))
        if record is None:
            raise LookupError(f'{"clusterrole" if cluster else "role"}.{GROUP} "{name}" not found')
        return list(record.obj.get("rules") or [])


@dataclass
class BoundRules:
    """A user's rules by namespace ("" applies everywhere), and errors for roles that do not exist."""

    by_namespace: dict[str, list[Rule]]
    missing: dict[str, list[str]]

    def rules(self, namespace: str) -> Iterator[Rule]:
        yield from self.by_namespace.get("", [])
        if namespace:
            yield from self.by_namespace.get(namespace, [])


def _subject_matches(user: User, subject: dict[str, Any], namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(user.name == name)
    if kind == "Group":
        return name in user.groups
    where = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and bool(where) and user.name == f"system:serviceaccount:{where}:{name}"


def _allow_reason(record: Record, binding: dict[str, Any], subject: dict[str, Any]) -> str:
    role = binding.get("roleRef") or {}
    namespace = f"/{record.key[1]}" if record.key[1] else ""
    subject_name = subject.get("name", "") + (f"/{subject['namespace']}" if subject.get("namespace") else "")
    return (
        f'RBAC: allowed by {binding.get("kind")} "{record.key[2]}{namespace}" of {role.get("kind")} '
        f'"{role.get("name")}" to {subject.get("kind")} "{subject_name}"'
    )


def forbidden_error(user: User, attributes: Attributes, reason: str = "") -> ApiError:
    if attributes.path:
        failure = ApiError(
            403, "Forbidden", f'forbidden: User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        )
        failure.shows_details = True
        return failure
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    verb, resource = attributes.verb, f'"{attributes.qualified_resource}" in API group "{attributes.group}"'
    text = f'User "{user.name}" cannot {verb} resource {resource} {scope}'
    return errors.forbidden(
        attributes.resource, attributes.group, attributes.name, f"{text}: {reason}" if reason else text
    )


# ---- privilege escalation


def uncovered_rules(owned: Iterable[Rule], requested: Iterable[dict[str, Any]]) -> list[str]:
    """The parts of `requested` that no single owned rule covers, as the API prints rules; sorted."""
    owned_rules = list(owned)
    missing: dict[tuple[str, str, str], list[str]] = {}
    for document in requested:
        for group, resource, name, verb in _breakdown_rule(document):
            if not any(_rule_covers(rule, group, resource, name, verb) for rule in owned_rules):
                verbs = missing.setdefault((group, resource, name), [])
                if verb not in verbs:
                    verbs.append(verb)
    return sorted(_format_rule(*key, verbs) for key, verbs in missing.items())


def _breakdown_rule(document: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """All (group, resource, name, verb) of a rule; non-resource URLs as group "/" with the path as resource."""
    for verb in document.get("verbs") or []:
        for path in document.get("nonResourceURLs") or []:
            yield "/", path, "", verb
        for group in document.get("apiGroups") or []:
            for resource in document.get("resources") or []:
                for name in document.get("resourceNames") or [""]:
                    yield group, resource, name, verb


def _rule_covers(rule: Rule, group: str, resource: str, name: str, verb: str) -> bool:
    if "*" not in rule.verbs and verb not in rule.verbs:
        return False
    if group == "/":
        return any(_path_matches(pattern, resource) for pattern in rule.paths)
    if "*" not in rule.groups and group not in rule.groups:
        return False
    if rule.names and (not name or name not in rule.names):
        return False
    sub = resource.partition("/")[2]
    return "*" in rule.resources or resource in rule.resources or bool(sub and f"*/{sub}" in rule.resources)


def _format_rule(group: str, resource: str, name: str, verbs: list[str]) -> str:
    def quoted(words: list[str]) -> str:
        return "[" + " ".join(errors.format_value(word) for word in words) + "]"

    if group == "/":
        return f"{{NonResourceURLs:{quoted([resource])}, Verbs:{quoted(verbs)}}}"
    names = f", ResourceNames:{quoted([name])}" if name else ""
    return f"{{APIGroups:{quoted([group])}, Resources:{quoted([resource])}{names}, Verbs:{quoted(verbs)}}}"

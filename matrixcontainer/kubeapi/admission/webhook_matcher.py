"""Which webhooks a request matches: rules, scope and selectors of their configurations.

`Hook` is one webhook of a stored configuration, parsed once. With `matchPolicy: Equivalent` a rule also matches other
versions of the same kind; the webhook then gets the object in the version that the rule names. Contract: public
documentation "Dynamic Admission Control".
"""

import base64
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.store import Store


@dataclass(frozen=True)
class AdmissionRequest:
    """The request to admit. `new` is None for DELETE, `old` for CREATE."""

    resource: Resource
    operation: str
    namespace: str
    name: str
    subresource: str
    new: dict[str, Any] | None
    old: dict[str, Any] | None


@dataclass
class Hook:
    name: str
    mutating: bool
    spec: dict[str, Any]
    configuration: str
    ca: str = ""
    rules: list[dict[str, Any]] = field(default_factory=list)

    @property
    def fails_closed(self) -> bool:
        return bool(self.spec.get("failurePolicy", "Fail") == "Fail")

    @property
    def timeout_s(self) -> int:
        return int(self.spec.get("timeoutSeconds") or 10)

    @property
    def has_no_side_effects(self) -> bool:
        """Whether a dry run may call it."""
        return self.spec.get("sideEffects") in ("None", "NoneOnDryRun")


def parse_hooks(configuration: dict[str, Any], mutating: bool) -> list[Hook]:
    hooks = []
    for document in configuration.get("webhooks") or []:
        bundle = (document.get("clientConfig") or {}).get("caBundle") or ""
        try:
            ca = base64.b64decode(bundle).decode()
        except ValueError:
            ca = "not a certificate"
        name = configuration["metadata"]["name"]
        hooks.append(Hook(document.get("name", ""), mutating, document, name, ca, document.get("rules") or []))
    return hooks


def matching_resource(hook: Hook, admission: AdmissionRequest, others: list[Resource]) -> Resource | None:
    """The resource in whose version the webhook gets the object, or None if no rule matches."""
    if any(_rule_matches(rule, admission, admission.resource) for rule in hook.rules):
        return admission.resource
    if hook.spec.get("matchPolicy", "Equivalent") != "Equivalent":
        return None
    for rule in hook.rules:
        for other in others:
            if _rule_matches(rule, admission, other):
                return other
    return None


def _rule_matches(rule: dict[str, Any], admission: AdmissionRequest, resource: Resource) -> bool:
    scope = rule.get("scope") or "*"
    return (
        _matches_any(rule.get("operations"), admission.operation)
        and _matches_any(rule.get("apiGroups"), resource.group)
        and _matches_any(rule.get("apiVersions"), resource.version)
        and (scope == "*" or (scope == "Namespaced") == resource.namespaced)
        and any(_resource_matches(text, resource.plural, admission.subresource) for text in rule.get("resources") or [])
    )


def _matches_any(words: list[str] | None, word: str) -> bool:
    return bool(words) and ("*" in words or word in words)  # type: ignore[operator]


def _resource_matches(text: str, plural: str, subresource: str) -> bool:
    expected, _, sub = text.partition("/")
    return expected in ("*", plural) and sub in ("*", subresource)


def matches_selectors(hook: Hook, admission: AdmissionRequest, store: Store) -> bool:
    """Whether the webhook's namespaceSelector and objectSelector match."""
    selector = hook.spec.get("namespaceSelector")
    if selector and not _namespace_selector_matches(selector, admission, store):
        return False
    selector = hook.spec.get("objectSelector")
    if not selector:
        return True
    return any(_object_selector_matches(selector, obj) for obj in (admission.new, admission.old) if obj is not None)


def _object_selector_matches(selector: dict[str, Any], obj: dict[str, Any]) -> bool:
    return matches_label_selector(selector, obj.get("metadata", {}).get("labels") or {})


def _namespace_selector_matches(selector: dict[str, Any], admission: AdmissionRequest, store: Store) -> bool:
    if admission.resource.storage == "namespaces":
        obj = admission.new if admission.new is not None else admission.old
        return obj is not None and _object_selector_matches(selector, obj)
    if not admission.namespace:
        return True
    record = store.latest(("namespaces", "", admission.namespace))
    return record is not None and _object_selector_matches(selector, record.obj)

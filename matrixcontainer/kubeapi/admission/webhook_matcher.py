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
    declared: dict[str, Any]
    configuration: str
    ca: str = ""
    rules: list[dict[str, Any]] = field(default_factory=list)

    @property
    def fails_closed(self) -> bool:
        return bool(self.declared.get("failurePolicy", "Fail") == "Fail")

    @property
    def timeout_s(self) -> int:
        return int(self.declared.get("timeoutSeconds") or 10)

    @property
    def harmless(self) -> bool:
        """Whether a dry run may call it."""
        return self.declared.get("sideEffects") in ("None", "NoneOnDryRun")


def hooks_of(configuration: dict[str, Any], mutating: bool) -> list[Hook]:
    found = []
    for reported in configuration.get("webhooks") or []:
        bundle = (reported.get("clientConfig") or {}).get("caBundle") or ""
        try:
            ca = base64.b64decode(bundle).decode()
        except ValueError:
            ca = "not a certificate"
        name = configuration["metadata"]["name"]
        found.append(Hook(reported.get("name", ""), mutating, reported, name, ca, reported.get("rules") or []))
    return found


def resource_for(hook: Hook, admission: AdmissionRequest, others: list[Resource]) -> Resource | None:
    """The resource in whose version the webhook gets the object, or None if no rule matches."""
    if any(_rule_fits(rule, admission, admission.resource) for rule in hook.rules):
        return admission.resource
    if hook.declared.get("matchPolicy", "Equivalent") != "Equivalent":
        return None
    for rule in hook.rules:
        for other in others:
            if _rule_fits(rule, admission, other):
                return other
    return None


def _rule_fits(rule: dict[str, Any], admission: AdmissionRequest, resource: Resource) -> bool:
    scope = rule.get("scope") or "*"
    return (
        _among(rule.get("operations"), admission.operation)
        and _among(rule.get("apiGroups"), resource.group)
        and _among(rule.get("apiVersions"), resource.version)
        and (scope == "*" or (scope == "Namespaced") == resource.namespaced)
        and any(_plural_fits(text, resource.plural, admission.subresource) for text in rule.get("resources") or [])
    )


def _among(words: list[str] | None, word: str) -> bool:
    return bool(words) and ("*" in words or word in words)  # type: ignore[operator]


def _plural_fits(text: str, plural: str, subresource: str) -> bool:
    wanted, _, sub = text.partition("/")
    return wanted in ("*", plural) and sub in ("*", subresource)


def selected(hook: Hook, admission: AdmissionRequest, store: Store) -> bool:
    """Whether the webhook's namespaceSelector and objectSelector match."""
    selector = hook.declared.get("namespaceSelector")
    if selector and not _namespace_fits(selector, admission, store):
        return False
    selector = hook.declared.get("objectSelector")
    if not selector:
        return True
    return any(_labels_fit(selector, obj) for obj in (admission.new, admission.old) if obj is not None)


def _labels_fit(selector: dict[str, Any], obj: dict[str, Any]) -> bool:
    return matches_label_selector(selector, obj.get("metadata", {}).get("labels") or {})


def _namespace_fits(selector: dict[str, Any], admission: AdmissionRequest, store: Store) -> bool:
    if admission.resource.storage == "namespaces":
        obj = admission.new if admission.new is not None else admission.old
        return obj is not None and _labels_fit(selector, obj)
    if not admission.namespace:
        return True
    record = store.latest(("namespaces", "", admission.namespace))
    return record is not None and _labels_fit(selector, record.obj)

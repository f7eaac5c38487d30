"""Webhook configurations: what is filled in, and what is refused before any webhook is called."""

from typing import Any
from urllib.parse import urlsplit

from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_subdomain

OPERATIONS = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
NO_SERVICES = "a webhook behind a Service cannot be reached here: give its address in clientConfig.url"
URL_FORM = "desired format: https://host[/path]"


class WebhookStrategy(BuiltinStrategy):
    """Configurations of both sorts."""

    unconditional_update = False

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found: list[Cause] = []
        names: set[str] = set()
        for index, hook in enumerate(obj.get("webhooks") or []):
            path = f"webhooks[{index}]"
            found += _check_hook(hook, path)
            if hook.get("name") in names:
                found.append(errors.duplicate(f"{path}.name", hook["name"]))
            names.add(hook.get("name", ""))
        return found


def _check_hook(hook: dict[str, Any], path: str) -> list[Cause]:
    found: list[Cause] = []
    name = hook.get("name", "")
    if not name:
        found.append(errors.required(f"{path}.name"))
    elif why := is_subdomain(name):
        found.append(errors.invalid(f"{path}.name", name, why))
    elif name.count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        found.append(errors.invalid(f"{path}.name", name, text))
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        found.append(errors.required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1"))
    elif not {"v1", "v1beta1"} & set(versions):
        text = "must include at least one of v1, v1beta1"
        found.append(errors.invalid(f"{path}.admissionReviewVersions", versions, text))
    for place, rule in enumerate(hook.get("rules") or []):
        found += _check_rule(rule, f"{path}.rules[{place}]")
    for key, allowed in (("failurePolicy", ["Fail", "Ignore"]), ("matchPolicy", ["Equivalent", "Exact"])):
        if hook.get(key) not in allowed:
            found.append(errors.not_supported(f"{path}.{key}", hook.get(key), allowed))
    effects = hook.get("sideEffects")
    if not effects:
        found.append(errors.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif effects not in ("None", "NoneOnDryRun"):
        found.append(errors.not_supported(f"{path}.sideEffects", effects, ["None", "NoneOnDryRun"]))
    if not 1 <= hook.get("timeoutSeconds", 10) <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        found.append(errors.invalid(f"{path}.timeoutSeconds", hook["timeoutSeconds"], text))
    found += check_client(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    return found + _check_conditions(hook.get("matchConditions") or [], f"{path}.matchConditions")


def _check_rule(rule: dict[str, Any], path: str) -> list[Cause]:
    found = []
    for key in ("operations", "apiGroups", "apiVersions", "resources"):
        words = rule.get(key) or []
        if not words:
            found.append(errors.required(f"{path}.{key}"))
        if len(words) > 1 and "*" in words:
            text = f"if '*' is present, must not specify other {'operations' if key == 'operations' else 'values'}"
            found.append(errors.invalid(f"{path}.{key}", words, text))
    found += [
        errors.not_supported(f"{path}.operations[{place}]", word, OPERATIONS)
        for place, word in enumerate(rule.get("operations") or [])
        if word not in OPERATIONS
    ]
    return found


def check_client(client: dict[str, Any], path: str) -> list[Cause]:
    """Where a webhook is: a URL or a service, and a URL of the right form."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [errors.required(path, "exactly one of url or service is required")]
    if service is not None:
        return [
            errors.required(f"{path}.service.{key}", f"service {key} is required")
            for key in ("name", "namespace")
            if not service.get(key)
        ]
    parts = urlsplit(str(url))
    where = f"{path}.url"
    found = []
    if parts.scheme != "https":
        found.append(errors.invalid(where, parts.scheme, f"'https' is the only allowed URL scheme; {URL_FORM}"))
    if not parts.netloc:
        found.append(errors.invalid(where, parts.netloc, f"host must be specified; {URL_FORM}"))
    if parts.username is not None:
        who = parts.netloc.rpartition("@")[0]
        found.append(errors.invalid(where, who, "user information is not permitted in the URL"))
    for word, current in (("fragments", parts.fragment), ("query parameters", parts.query)):
        if current:
            found.append(errors.invalid(where, current, f"{word} are not permitted in the URL"))
    return found


def _check_conditions(conditions: list[dict[str, Any]], path: str) -> list[Cause]:
    if not conditions:
        return []
    from matrixcontainer.kubeapi.cel.environment import environment

    found = []
    for place, condition in enumerate(conditions):
        expression = condition.get("expression", "")
        if not condition.get("name"):
            found.append(errors.required(f"{path}[{place}].name"))
        if not expression.strip():
            found.append(errors.required(f"{path}[{place}].expression"))
            continue
        try:
            environment().compile(expression)
        except ValueError as failure:
            text = f"compilation failed: ERROR: <input>: {failure}"
            found.append(errors.invalid(f"{path}[{place}].expression", expression, text))
    return found


def warn_of_services(obj: dict[str, Any]) -> list[str]:
    """What a client should know before its first write is refused."""
    hooks = obj.get("webhooks") or []
    named = [hook.get("name", "") for hook in hooks if (hook.get("clientConfig") or {}).get("service")]
    return [f"{name}: {NO_SERVICES}" for name in named]

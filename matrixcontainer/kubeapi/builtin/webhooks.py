"""Strategy and validation of webhook configurations."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from matrixcontainer.kubeapi.builtin.checks import Obj, enum, required, rules, unique
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import subdomain_error

OPERATIONS = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
NO_SERVICES = "a webhook behind a Service cannot be called by this server: use clientConfig.url"
URL_FORM = "desired format: https://host[/path]"


class WebhookStrategy(BuiltinStrategy):
    """Strategy of mutating and validating configurations."""

    unconditional_update = False


def validate_webhook(value: Obj, path: str) -> Iterator[Cause]:
    name, versions = value.get("name", ""), value.get("admissionReviewVersions") or []
    message = subdomain_error(name) if name else ""
    if name and not message and name.count(".") < 2:
        message = "should be a domain with at least three segments separated by dots"
    if message:
        yield errors.invalid(f"{path}.name", name, message)
    if not versions:
        yield errors.required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1")
    elif not {"v1", "v1beta1"} & set(versions):
        yield errors.invalid(f"{path}.admissionReviewVersions", versions, "must include at least one of v1, v1beta1")
    if not 1 <= (seconds := value.get("timeoutSeconds", 10)) <= 30:
        yield errors.invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")


def validate_rule(value: Obj, path: str) -> Iterator[Cause]:
    for key in ("operations", "apiGroups", "apiVersions", "resources"):
        words = value.get(key) or []
        if not words:
            yield errors.required(f"{path}.{key}")
        if len(words) > 1 and "*" in words:
            message = f"if '*' is present, must not specify other {'operations' if key == 'operations' else 'values'}"
            yield errors.invalid(f"{path}.{key}", words, message)
    for place, value_text in enumerate(value.get("operations") or []):
        if value_text not in OPERATIONS:
            yield errors.not_supported(f"{path}.operations[{place}]", value_text, OPERATIONS)


def validate_client_config(value: Obj, path: str) -> Iterator[Cause]:
    """A webhook's clientConfig: either a URL or a service, and the form of the URL."""
    url, service = value.get("url"), value.get("service")
    if (url is None) == (service is None):
        yield errors.required(path, "exactly one of url or service is required")
    elif service is None:
        parts = urlsplit(str(url))
        for current, message in (
            (parts.scheme if parts.scheme != "https" else None, f"'https' is the only allowed URL scheme; {URL_FORM}"),
            (None if parts.netloc else "", f"host must be specified; {URL_FORM}"),
            (parts.username, "user information is not permitted in the URL"),
            (parts.fragment or None, "fragments are not permitted in the URL"),
            (parts.query or None, "query parameters are not permitted in the URL"),
        ):
            if current is not None:
                yield errors.invalid(f"{path}.url", current, message)


def validate_match_condition(value: Obj, path: str) -> Iterator[Cause]:
    if expression := value.get("expression", "").strip():
        from matrixcontainer.kubeapi.cel.environment import environment

        try:
            environment().compile(expression)
        except ValueError as failure:
            yield errors.invalid(f"{path}.expression", expression, f"compilation failed: ERROR: <input>: {failure}")


for _sort in ("Validating", "Mutating"):
    rules(f"admissionregistration.v1.{_sort}WebhookConfiguration", unique("webhooks", "name"))
    rules(
        f"admissionregistration.v1.{_sort}Webhook",
        required("name"),
        validate_webhook,
        enum("failurePolicy", "Fail", "Ignore"),
        enum("matchPolicy", "Equivalent", "Exact"),
        required("sideEffects", detail="must specify one of None, NoneOnDryRun"),
        enum("sideEffects", "None", "NoneOnDryRun"),
    )
rules("admissionregistration.v1.RuleWithOperations", validate_rule)
rules("admissionregistration.v1.WebhookClientConfig", validate_client_config)
rules("admissionregistration.v1.ServiceReference", required("name", "namespace"))
rules("admissionregistration.v1.MatchCondition", required("name", "expression"), validate_match_condition)


def service_warnings(obj: dict[str, Any]) -> list[str]:
    """Warnings for webhooks behind Services, which cannot be called."""
    hooks = obj.get("webhooks") or []
    named = [hook.get("name", "") for hook in hooks if (hook.get("clientConfig") or {}).get("service")]
    return [f"{name}: {NO_SERVICES}" for name in named]

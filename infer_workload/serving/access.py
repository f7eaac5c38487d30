"""Who may do what in CloudMatrix-Infer, its OpenAI endpoint included."""

from __future__ import annotations

from infer_workload.contract import DeploymentRequest, DeploymentView
from infer_workload.metering.access import USAGE, USAGE_LIMITS
from infer_workload.serving.store import DeploymentRow
from matrixcommon.api.authorization import (
    EDITORS,
    ENSURED,
    EVERYBODY,
    USERS,
    VIEWERS,
    AccessRules,
    ResourceKind,
    Rule,
    Scope,
)

DEPLOYMENTS = ResourceKind(
    "deployments",
    Scope.PROJECT,
    {
        **ENSURED,
        "GET /statistics": VIEWERS,
        "GET /load": VIEWERS,
        "GET /context-cache": VIEWERS,
        "POST :warm": EDITORS,
        "GET /model-cache": VIEWERS,
        "PUT /load": EDITORS,
        "DELETE /load": EDITORS,
        "PUT /drain": EDITORS,
        "DELETE /drain": EDITORS,
        "PUT /scale": EDITORS,
        "DELETE /scale": EDITORS,
    },
    request=DeploymentRequest,
    view=DeploymentView,
    row=DeploymentRow,
)
MODELS = ResourceKind("models", Scope.SERVICE, {"LIST": VIEWERS | USERS, "GET": VIEWERS | USERS})

ACCESS = AccessRules(
    "CloudMatrix-Infer",
    (DEPLOYMENTS, USAGE, USAGE_LIMITS, MODELS),
    (
        Rule("POST", "/v1/chat/completions", "completions", USERS, Scope.SERVICE, mutates=False),
        Rule("POST", "/v1/completions", "completions", USERS, Scope.SERVICE, mutates=False),
        Rule("GET", "/health", "health", EVERYBODY, Scope.SERVICE, mutates=False),
    ),
)

"""Access rules for deployments and models."""

from __future__ import annotations

from infer_workload.contract.deployments import DeploymentRequest, DeploymentView
from infer_workload.serving.store import DeploymentRow
from matrixcommon.api.authorization import (
    EDITABLE,
    EDITORS,
    USERS,
    VIEWERS,
    ResourceKind,
    Scope,
)
from matrixcommon.model.resource_model import StuckView

DEPLOYMENTS = ResourceKind(
    "deployments",
    Scope.PROJECT,
    {
        **EDITABLE,
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
STUCK = ResourceKind("stuck", Scope.PROJECT, {"LIST": VIEWERS}, view=StuckView)
MODELS = ResourceKind("models", Scope.SERVICE, {"LIST": VIEWERS | USERS, "GET": VIEWERS | USERS})

"""Access rules of CloudMatrix-Infer, including its OpenAI endpoint."""

from __future__ import annotations

from infer_workload.metering.access import USAGE, USAGE_LIMITS
from infer_workload.report_store.access import REPORTS
from infer_workload.serving.access import DEPLOYMENTS, MODELS, STUCK
from matrixcommon.api.authorization import USERS, AccessRules, Rule, Scope

ACCESS = AccessRules(
    "CloudMatrix-Infer",
    (DEPLOYMENTS, STUCK, USAGE, USAGE_LIMITS, REPORTS, MODELS),
    (
        Rule("POST", "/v1/chat/completions", "completions", USERS, Scope.SERVICE, mutates=False),
        Rule("POST", "/v1/completions", "completions", USERS, Scope.SERVICE, mutates=False),
    ),
)

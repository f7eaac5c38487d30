"""Every reason that the code gives is explained, and nothing is explained that nobody gives.

A reason is a PascalCase word. The code has other such words (states, kinds, modes): those that a state machine, a
`Literal`, a `Kind` or a type of conditions declares are known from there, the rest is listed below. So a new word has
to be put in one place or the other.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import services
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.reasons import reasons
from services.matrixctl.explain.catalogue import CONDITIONS

ROOT = Path(__file__).resolve().parents[4]
ROOMS = (
    *("matrixcommon", "matrixresource", "matrixlink", "matrixcompute", "infer_workload"),
    *("matrixcontainer/operator", "matrixcontainer/mirrors", "matrixcontainer/scheduler", "matrixcontainer/client"),
    *("services/chassis", "services/node_agent", "services/process_faults"),
)
WORD = re.compile(r"(?:[A-Z][a-z0-9]+)+")
COMPOSED = {
    "Agent": ("AgentConnected", "AgentStale", "AgentLost"),
    "Link": ("LinkUp", "LinkDegraded", "LinkDown"),
    "Node": ("NodeLost", "NodeQuarantined", "NodeRetired", "NodeServicing"),
    "Switch": ("SwitchUp", "SwitchDegraded", "SwitchDown"),
}
"""Beginnings to which a state is added, and what comes of it."""
NO_REASONS = {
    "kinds and names": "AgentGateway Cluster ClusterRole CustomResourceDefinition Hostname List MatrixFault "
    "MatrixFaultScenario MatrixLink Namespaced NetworkSlice Role Operator DisruptionBudget RecoveryPolicy ScalingPolicy "
    "Supernode User Page Problem ValidationError NPUs Succeeded PodScheduled Always Exists NoExecute NoSchedule S2 C1 C2",
    "HTTP": "Allow Authorization",
    "states without a machine": "Admitted Clearing Closed Open Current Superseded Cut Flowing Offered Inactive Installed "
    "PendingAcceptance Restored Seen Unprotected Wanted Decoding Finished Prefilling Transferring Unavailable Up Down "
    "Healthy SubHealthy Lost Connected Rerouting Withdrawing Withdrawn Granted Protected Loading Serving Idle",
    "conditions": "Established RoutesProgrammed LinksUp NPUHealthy",
    "fault levels": "FreeRestart ManuallySeparate NotHandle Restart RestartBusiness RestartRequest Separate SubHealth "
    "PreSeparate SeparateNPU",
    "axes and columns": "Output P50 P90 P99 Requests",
}


@cache
def found() -> tuple[dict[str, list[str]], frozenset[str]]:
    """PascalCase words of the code with their places, and those of them that something else declares."""
    words: dict[str, list[str]] = defaultdict(list)
    declared: set[str] = set()
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            tree = ast.parse(file.read_text())
            skipped: set[int] = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.Subscript) and _called(node.value) == "Literal":
                    skipped |= _constants(node)
                    declared |= {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                elif isinstance(node, ast.Assign) and any(_called(each) == "__all__" for each in node.targets):
                    skipped |= _constants(node)
                elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
                    skipped |= _constants(node.annotation)
                elif isinstance(node, ast.Call):
                    first = node.args[0] if node.args else None
                    if _called(node.func) in ("TypeVar", "Kind"):
                        skipped |= _constants(node)
                    elif _called(node.func) == "State" and isinstance(first, ast.Constant):
                        declared.add(first.value)
                    elif _called(node.func) in ("set_condition", "condition", "say", "is_true") and first is not None:
                        skipped |= _constants(first)
            for node in ast.walk(tree):
                text = node.value if isinstance(node, ast.Constant) and id(node) not in skipped else None
                if isinstance(text, str) and WORD.fullmatch(text):
                    words[text].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    return words, frozenset(declared)


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else str(getattr(node, "id", ""))


def _constants(node: ast.AST) -> set[int]:
    return {id(each) for each in ast.walk(node)}


def test_every_reason_in_the_code_is_explained() -> None:
    words, declared = found()
    others = {word for line in NO_REASONS.values() for word in line.split()} | CONDITIONS.keys()
    unexplained = {
        word: places[:2]
        for word, places in sorted(words.items())
        if word not in reasons() and word not in declared and word not in others and word not in COMPOSED
    }
    assert not unexplained, "explain these in matrixcommon/model/reasons.yaml, or list them above as no reasons"


def test_every_refusal_is_explained() -> None:
    for module in pkgutil.walk_packages(services.__path__, "services."):
        if ".migrations" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def leaves(kind: type[MatrixError]) -> set[str]:
        return {kind.__name__}.union(*(leaves(each) for each in kind.__subclasses__()))

    ours = {name for name in leaves(MatrixError) if name != "MatrixError" and not name.startswith("_")}
    assert ours <= reasons().keys(), sorted(ours - reasons().keys())


@pytest.mark.parametrize("beginning", COMPOSED)
def test_what_a_state_is_added_to_is_explained_for_each_state(beginning: str) -> None:
    assert set(COMPOSED[beginning]) <= reasons().keys()
    assert beginning in found()[0]


def test_nothing_is_explained_that_nobody_says() -> None:
    words, declared = found()
    classes = "\n".join(file.read_text() for room in (*ROOMS, "services") for file in (ROOT / room).rglob("*.py"))
    composed = {word for each in COMPOSED.values() for word in each}
    unsaid = {
        name
        for name in reasons()
        if name not in words and name not in declared and name not in composed and f"class {name}(" not in classes
    }
    assert not unsaid


def test_each_explanation_is_a_sentence_without_an_end_and_says_what_to_do_where_it_can() -> None:
    for reason in reasons().values():
        assert reason.means, reason.name
        assert not reason.means.endswith("."), reason.name
    refusals = [each for each in reasons().values() if each.group == "refusals"]
    assert all(each.do for each in refusals)

"""What the operator does with which kind, read from its source: the rights it needs, no more.

Every call of a KubeClient verb in matrixcontainer and in the operator's process counts. A kind that is handed around
is traced to where it is chosen; one that cannot be traced is an error, so that no right is forgotten. What Kopf does
beside that, for the kinds it has handlers for, is written down here (kopf 1.4x: `_cogs/clients`, `_core/reactor`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from matrixcontainer.client import client
from matrixcontainer.client.client import CRD, Kind, KubeClient
from matrixcontainer.mirrors.mirrors import MIRRORED
from matrixcontainer.operator import leader_election

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "matrixcontainer" / each for each in ("operator", "scheduler", "mirrors", "client")]
SOURCES = [path for folder in [*FOLDERS, ROOT / "services" / "operator"] for path in sorted(folder.glob("*.py"))]

VERBS = {
    "find": ("get",),
    "list": ("list",),
    "watch": ("watch",),
    # Applying what is not there creates it. A subresource is only ever of something that is there.
    "apply": ("patch", "create"),
    "merge": ("patch",),
    "create": ("create",),
    "delete": ("delete",),
}
BINDS = "bind"
"""The verb that says where a pod runs; it names no kind."""
SUBRESOURCE_AT = {"apply": 2, "merge": 4}
KOPF_WATCHES = ("list", "watch")
KOPF_HANDLES = ("list", "watch", "patch")


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one kind; `resource` is as RBAC names it, with the subresource."""

    group: str
    resource: str
    verb: str


def right(kind: Kind, verb: str, subresource: str = "") -> Right:
    group = kind.api_version.rpartition("/")[0]
    return Right(group, f"{kind.plural}/{subresource}" if subresource else kind.plural, verb)


def needed() -> set[Right]:
    """All rights the operator needs, in the cluster and in the namespace of its Lease."""
    spoken = {name for name, current in vars(KubeClient).items() if callable(current) and not name.startswith("_")}
    assert spoken == {*VERBS, BINDS}, "KubeClient has other verbs now: say here which rights they need"
    trees = {path: ast.parse(path.read_text()) for path in SOURCES if path.name != "client.py"}
    found = {right(CRD, verb) for verb in KOPF_WATCHES}
    for path, tree in trees.items():
        for call in _calls(tree):
            found |= set(_rights_of(call, path, trees))
            if isinstance(call.func, ast.Name) and call.func.id == "_kopf_resource":
                found |= {right(kind, verb) for kind in _kinds(call.args[0], path, trees) for verb in KOPF_HANDLES}
    return found | _owner_rights(trees)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _rights_of(call: ast.Call, path: Path, trees: dict[Path, ast.Module]) -> Iterator[Right]:
    function = call.func
    if not (isinstance(function, ast.Attribute) and function.attr in {*VERBS, BINDS}):
        return
    target = ast.unparse(function.value)
    if target.rpartition(".")[2] not in ("_kube", "kube"):
        return
    if function.attr == BINDS:
        yield right(client.POD, "create", "binding")
        return
    subresource = _subresource(call, function.attr)
    verbs = ("patch",) if subresource else VERBS[function.attr]
    for kind in _kinds(call.args[0], path, trees):
        for verb in verbs:
            yield right(kind, verb, subresource)


def _subresource(call: ast.Call, verb: str) -> str:
    given = [each.value for each in call.keywords if each.arg == "subresource"]
    given += call.args[SUBRESOURCE_AT[verb] :] if verb in SUBRESOURCE_AT else []
    return "" if not given else str(ast.literal_eval(given[0]))


def _kinds(argument: ast.expr, path: Path, trees: dict[Path, ast.Module]) -> list[Kind]:
    text = ast.unparse(argument)
    if text.isupper():
        return [_constant(argument)]
    if (text, path.name) in (("self._kind", "mirrors.py"), ("kind", "operator_process.py")):
        return _mirrored(trees)
    if (text, path.name) == ("kind", "crd_installer.py"):
        return [*_mirrored(trees), *_reconciled(trees)]  # of every CRD that the operator installs
    if text in ("self.kind", "reconciler.kind"):
        return _reconciled(trees)
    raise AssertionError(f"{path.name}:{argument.lineno}: which kind is {text}? Teach operator_rights.py to trace it")


def _mirrored(trees: dict[Path, ast.Module]) -> list[Kind]:
    """The kinds of all mirrors, which are those that the operator's process follows one by one."""
    (tree,) = (tree for path, tree in trees.items() if path.name == "mirrors.py")
    made = [call for call in _calls(tree) if isinstance(call.func, ast.Name) and call.func.id == "Mirror"]
    kinds = [_constant(call.args[1]) for call in made]
    assert kinds == list(MIRRORED)
    return kinds


def _reconciled(trees: dict[Path, ast.Module]) -> list[Kind]:
    """The kinds of all reconcilers: what each class says its `kind` is."""
    assigned = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    declared = [node.value for node in assigned if ast.unparse(node.targets[0]) == "kind"]
    return [_constant(value) for value in declared if ast.unparse(value).isupper()]


def _owner_rights(trees: dict[Path, ast.Module]) -> set[Right]:
    """Who makes something that blocks its owner's deletion may be asked for a right on the owner's finalizers."""
    blocks = any("'blockOwnerDeletion': True" in ast.unparse(tree) for tree in trees.values())
    return {right(client.INFER, "update", "finalizers")} if blocks else set()


def _constant(node: ast.expr) -> Kind:
    name = ast.unparse(node)
    kind = getattr(client, name, None) or getattr(leader_election, name, None)
    assert isinstance(kind, Kind), f"{name} is not a kind"
    return kind

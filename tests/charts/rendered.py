"""The chart as Helm renders it: for the golden files, and as objects for tests to look at."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.charts.helm.build import binary

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "cloudmatrix"
VALUES = Path(__file__).resolve().parent / "values"
VALUE_SETS = ("default", "postgres", "minimal", "everything")
RELEASE, NAMESPACE = "cm", "practice"
KUBE_VERSION = "1.33.0"


class HelmRefused(Exception):
    """What Helm reported on its way out."""


def helm(*arguments: str, **more: Any) -> str:
    """The output of a Helm command; HelmRefused with what it reported where it fails."""
    done = subprocess.run([str(binary()), *arguments], capture_output=True, text=True, timeout=300, **more)
    if done.returncode != 0:
        raise HelmRefused(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def template(*arguments: str) -> str:
    return helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "--kube-version", KUBE_VERSION, *arguments)


@functools.cache
def golden(values: str) -> str:
    """What Helm makes of one of the sets of values, with `...` for what is new at every rendering."""
    text = template("--values", str(VALUES / f"{values}.yaml"))
    documents = re.split(r"^---\n", text, flags=re.MULTILINE)
    return "---\n".join(_settled(document) for document in documents)


def _settled(document: str) -> str:
    if "\nkind: Secret\n" in document:
        return re.sub(
            r"^(  [\w.-]+|\s+certificate-authority-data|.*\{token): .+$", _hidden, document, flags=re.MULTILINE
        )
    if "kind: ConfigMap" in document and 'ANCHOR_WALL: "1795000000"' not in document:
        return re.sub(r"(TIME_ANCHOR_\w+): .+", r"\1: ...", document)
    return document


def _hidden(found: re.Match[str]) -> str:
    """Names and labels stay; what is secret is made anew at every rendering."""
    kept = found.group(1).strip() in ("name", "namespace", "type") or "/" in found.group(1) or found.group(0)[-1] == "|"
    return found.group(0) if kept else f"{found.group(1)}: ..."


@functools.cache
def objects(values: str) -> tuple[dict[str, Any], ...]:
    """The objects of one of the sets of values."""
    text = template("--values", str(VALUES / f"{values}.yaml"))
    return tuple(document for document in yaml.safe_load_all(text) if document)


def of_kind(values: str, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in objects(values) if each["kind"] in kinds]


def component(found: dict[str, Any]) -> str:
    """The process an object belongs to."""
    return str(found["metadata"]["labels"]["app.kubernetes.io/component"])


def pods(values: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(workload, its pod's spec) of everything that runs."""
    return [(each, each["spec"]["template"]["spec"]) for each in of_kind(values, "Deployment", "StatefulSet", "Job")]

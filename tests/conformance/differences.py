"""What is known to differ between the embedded API and a real one, and the page that says so.

There are two kinds. ACCEPTED differences are ours on purpose and name their reason; a place that matches one is not
compared. Open ones are faults of ours that wait to be mended: `open.yaml` holds, for each case, what differs (and what
fails on ours alone); such a case is expected to fail, and one that no longer does must leave the list, so the list stays
honest. `python -m tests.conformance.record` writes the list anew from a run on both servers; `page()` prints it.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance import cases as _cases  # noqa: F401  (importing registers them)
from tests.conformance.catalogue import CASES, LEVELS
from tests.conformance.normal import differences
from tests.conformance.runner import Outcome

OPEN = Path(__file__).with_name("open.yaml")


@dataclass(frozen=True)
class Accepted:
    """Places (a pattern searched in "case | request | path: values") that may differ, and why."""

    where: str
    why: str


ACCEPTED = (
    Accepted(
        r"(columnDefinitions|table-of-definitions \| columns \| \.value)\[\d+\]\.description",
        "Tables describe their columns in our own words; names, types, formats, priorities and cells are the same.",
    ),
    Accepted(
        r"kubectl explain.*\.out",
        "`kubectl explain` shows the same fields and types; what built-in metadata means is told in our own words.",
    ),
    Accepted(
        r"^watch-with-initial-events \|",
        "A watch that asks for initial events gets them and their bookmark, as in 1.32 and from 1.34 on; 1.33 has this "
        "switched off.",
    ),
    Accepted(
        r"^(definition-refused|[a-z-]+-of-definitions).*customresourcedefinitions[^|]* \| \.body\.(message|details\.causes)",
        "A definition that is refused names each mistake once, in the version it stands in; a real server names at the top what "
        "all versions say alike, and some mistakes twice.",
    ),
    Accepted(
        r"message.*(compilation failed|undeclared reference|ERROR: <input>)",
        "A CEL rule that does not compile is refused for the same field; the compiler's explanation is worded differently.",
    ),
    Accepted(
        r"message: .*(map\[string\]|\[\]string|\[\]interface|(Invalid|Duplicate) value: (\[\])?\w+\.\w+\{)",
        "A refused value that is no text, number or truth is shown as JSON; Go shows it as Go source.",
    ),
    Accepted(
        r"(message|errors\[0\]): .*unable to parse requirement: found",
        "A label selector that cannot be read is refused with what could stand there; a real server's parser names the word it "
        "stumbled over.",
    ),
    Accepted(
        r"failed to create typed patch|match \$setElementOrder|unknown patch type|declared merge key|types are not identical|expected a list",
        "A patch of the wrong shape is refused in the same places; values in its message are JSON and not as Go prints them.",
    ),
    Accepted(
        r"accessor error|^(odd-metadata-and-bodies|patches-of-what-is-fixed) \|.*message",
        "What is no count where a definition keeps one is refused once, by the schema where that says it already.",
    ),
    Accepted(
        r"deprecated\.daemonset\.template\.generation|empty selector is invalid for|^(invalid|refused)-(stateful-set|daemon-set|cron-job)[^|]* \|.*causes",
        "StatefulSets, DaemonSets and CronJobs get the checks that every pod template gets, and few of their own.",
    ),
    Accepted(
        r"nothing here acts on",
        "Who creates a StatefulSet, CronJob, ReplicationController, claim, Ingress or NetworkPolicy is warned that "
        "nothing here acts on it.",
    ),
    Accepted(
        r"message: .*pod updates may not change fields other than",
        "A refused change of a pod's spec names the rule; Go adds a picture of the difference between two Go structs.",
    ),
    Accepted(
        r"finalizers: ours absent, real \['kubernetes\.io/pvc?-protection'\]",
        "Claims and volumes carry no finalizer that protects them: nothing binds or mounts them here.",
    ),
    Accepted(
        r"^quotas-of-namespaces \|",
        "ResourceQuota and LimitRange are not served: a namespace is a project, and its quota is MatrixResource's.",
    ),
    Accepted(
        r"^openapi-v2-names-the-kinds \|",
        "OpenAPI 2 has a head and names nothing: kubectl, Helm and client-go read version 3, and take of version 2 no more "
        "than that there is nothing to check.",
    ),
    Accepted(
        r"^an-answer-in-protobuf-alone \||only the following media types are accepted",
        "Bodies in protobuf are read, answers are JSON or YAML: every client of client-go also takes JSON.",
    ),
    Accepted(
        r"^kinds-without-a-user \|",
        "Endpoints, IngressClass, RuntimeClass, PodTemplate and ControllerRevision are not served: nobody here acts on them, "
        "and no program that is known to be used here reads them.",
    ),
    Accepted(
        r"^storage-that-cannot-be \|",
        "Volumes, claims and storage classes are stored with the checks of their types alone: nothing binds or mounts them here.",
    ),
    Accepted(
        r"pods \| \.value\.subresources\.(ephemeralcontainers|resize): ours absent",
        "Pods have no `ephemeralcontainers` and no `resize`: emulated pods run no program.",
    ),
    Accepted(
        r"^table-of-(ingresses|network-policies|storage-classes|claims|endpoint-slices|cron-jobs|many-addresses|many-hosts|"
        r"replication-controllers|selectors) \||kubectl get (cronjob|ingress) .*\.out",
        "Tables of Ingresses, NetworkPolicies, EndpointSlices, CronJobs, ReplicationControllers, volumes, claims and storage classes "
        "show name and age: nobody here acts on them.",
    ),
    Accepted(
        r"^a-terminating-namespace-takes-nothing-new \| conditions|^what-a-namespace-is-given \|.*kubernetes\.io/description",
        "A namespace that goes has the conditions that people wait for, without that of broken group versions; what it is given "
        "bears no description.",
    ),
    Accepted(
        r"^websocket-watch-(refusals|with-the-token-as-a-protocol) \|.*value\[1\]",
        "A refused websocket is answered with the headers of a handshake beside the refusal: the server under the API "
        "prepares the upgrade before it asks.",
    ),
    Accepted(
        r"(message|warnings|errors|value).*(cannot unmarshal|cannot be handled as|unknown conversion|Kind' is missing|illegal base64|error parsing regexp|is registered for version|json parse error|cannot restore|decode|unexpected end of JSON|invalid character)",
        "A body that cannot be decoded is refused; the text of Go's decoder is not imitated.",
    ),
)


def parted(name: str, ours: Outcome, theirs: Outcome) -> list[str]:
    """Where two runs of a case part, accepted places left out."""
    lines: list[str] = []
    for mine, real in zip(ours.seen, theirs.seen, strict=False):
        lines += [f"{mine['did']} | {line}" for line in differences(mine, real)]
    if not lines and len(ours.seen) != len(theirs.seen):
        lines.append(f"ours took {len(ours.seen)} steps, the real server {len(theirs.seen)}")
    return [line for line in lines if not any(re.search(one.where, f"{name} | {line}", re.DOTALL) for one in ACCEPTED)]


@cache
def open_list() -> dict[str, dict[str, Any]]:
    """Case name to {"fails": text, "differs": [lines]}."""
    return yaml.safe_load(OPEN.read_text()) or {} if OPEN.exists() else {}


@dataclass(frozen=True)
class Judge:
    name: str
    fails: str
    differs: list[str]

    def embedded(self, outcome: Outcome) -> None:
        """The case's own expectation on ours: holds, or is known not to."""
        if self.fails:
            assert outcome.failure, f"mended: delete `fails` of {self.name} in {OPEN.name}"
            pytest.xfail(_cell(self.fails, 160))
        assert not outcome.failure, outcome.failure

    def same(self, ours: Outcome, theirs: Outcome) -> None:
        """Both servers showed the same, or are known not to."""
        lines = parted(self.name, ours, theirs)
        if self.fails or self.differs:
            assert lines or ours.failure, f"mended: delete {self.name} in {OPEN.name}"
            pytest.xfail(_cell((self.differs or [self.fails])[0], 160))
        assert not lines, "\n".join(lines[:20])


def judge(name: str) -> Judge:
    known = open_list().get(name, {})
    return Judge(name, known.get("fails", ""), known.get("differs", []))


# ---- the page


def page() -> str:
    """docs/reference/kube-differences.md."""
    total = Counter(one.level for one in CASES.values())
    known = open_list()
    lines = [
        "# The embedded Kubernetes API beside a real one",
        "",
        "One behaviour suite runs on both servers (`make conformance`): every case asserts what must hold, and what the two",
        "servers answered (codes, reasons, messages, causes, objects, events of watches, tables) is compared after uids, times,",
        "versions and addresses are taken out. This page is printed from what is known to differ; a difference that is not",
        "here fails the suite, and so does one that is here and is gone.",
        "",
        "| level | cases | the same | still different |",
        "| --- | --- | --- | --- |",
    ]
    for level, meaning in LEVELS.items():
        differing = sum(1 for name in known if name in CASES and CASES[name].level == level)
        lines.append(f"| {level}: {meaning} | {total[level]} | {total[level] - differing} | {differing} |")
    lines += ["", "## Different on purpose", ""]
    lines += [f"- {one.why}" for one in ACCEPTED]
    lines += ["", "## To be repaired", ""]
    if not known:
        lines.append("Nothing.")
    for level in LEVELS:
        rows = [(CASES[name].topic, name, entry) for name, entry in known.items() if CASES[name].level == level]
        if rows:
            lines += [f"### {level}", "", "| case | what differs |", "| --- | --- |"]
            lines += [
                f"| {topic}: {name} | {_told(entry)} |" for topic, name, entry in sorted(rows, key=lambda row: row[:2])
            ]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _told(entry: dict[str, Any]) -> str:
    """A cell: the first places where the case differs, or how it fails."""
    text = "<br>".join(_cell(line) for line in entry.get("differs", [])[:3])
    return text or _cell(entry.get("fails", ""))


def _cell(text: str, limit: int = 220) -> str:
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."

"""`matrixctl explain`: every kind, every field and every word, without a stack."""

from __future__ import annotations

import json

import pytest

from matrixcommon.model.reasons import reasons
from services.matrixctl.explain.catalogue import MACHINES, Field, custom_kinds, kinds, lookup_kind, machine_of, words
from services.matrixctl.output.resource_kinds import LISTED_KINDS
from tests.services.matrixctl.inprocess import run_matrixctl


def every(fields: tuple[Field, ...], path: str = "") -> dict[str, Field]:
    found = {}
    for each in fields:
        found[f"{path}{each.name}"] = each
        found |= every(each.inside, f"{path}{each.name}.")
    return found


@pytest.mark.parametrize("noun", [noun.name for noun in LISTED_KINDS])
def test_every_noun_of_get_is_explained(noun: str) -> None:
    kind = lookup_kind(noun)
    assert kind is not None
    assert kind.means
    assert bool(kind.states) == (noun in MACHINES)


def test_every_field_of_every_kind_says_what_it_means() -> None:
    silent = {
        f"{kind.name}.{path}"
        for kind in kinds()
        if kind.name not in custom_kinds()
        for path, each in (every(kind.fields) | every(kind.settable)).items()
        if not each.means
    }
    assert not silent


def test_every_field_of_spec_and_status_in_kubernetes_says_what_it_means() -> None:
    silent = [
        f"{kind.name}.{path}"
        for kind in custom_kinds().values()
        for path, each in every(kind.fields).items()
        if path.startswith(("spec.", "status.")) and not each.means
    ]
    assert not silent


@pytest.mark.parametrize("word", [*reasons(), *(name for kind in MACHINES for name in machine_of(kind).states)])  # type: ignore[union-attr]
def test_every_reason_and_state_is_explained(word: str) -> None:
    found = words()[word]
    assert found.reason or found.states


def test_a_kind_shows_its_states_fields_and_what_may_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_matrixctl(capsys, "explain", "cmi")
    assert (code, err) == (0, "")
    assert out.startswith("instances: ")
    assert "Repairing" in out
    assert "  readyNodes <integer>  members that are ready" in out
    assert "what may be set" in out


def test_a_field_is_reached_by_its_path_and_a_wrong_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "explain", "instances.conditions.reason")
    assert (code, out) == (0, "instances.conditions.reason <string>: why, as one word for programs\n")
    code, _, err = run_matrixctl(capsys, "explain", "instances.conditions.reson")
    assert code == 2
    assert "did you mean 'reason'?" in err
    code, out, _ = run_matrixctl(capsys, "explain", "CloudMatrixInstance.spec.nodes", "-o", "json")
    assert json.loads(out)["type"] == "integer"


def test_a_reason_says_what_it_means_and_what_to_do_then(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "explain", "insufficientcapacity")
    assert code == 0
    assert "it does not fit; `blocking` says what is in the way" in out
    assert "what to do: see the smallest change that would make it fit with `matrixctl plan`" in out


def test_a_word_that_is_reason_condition_and_state_says_all_three(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "explain", "Degraded")
    assert code == 0
    assert "Degraded, a reason (kubernetes)" in out
    assert "Degraded, a type of conditions" in out
    assert "Degraded, a state of slices" in out


def test_without_a_word_it_lists_all_and_an_unknown_one_says_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "explain", "-o", "json")
    listed = {each["word"] for each in json.loads(out)["items"]}
    assert code == 0
    assert {"nodes", "CloudMatrixInstance", "Scheduled", *reasons()} <= listed
    code, _, err = run_matrixctl(capsys, "explain", "instanc")
    assert code == 2
    assert err.startswith("InvalidField: there is no 'instanc'; did you mean 'instance'?")

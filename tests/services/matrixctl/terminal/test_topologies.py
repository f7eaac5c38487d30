"""`--topology` of `matrixctl up`, and `matrixctl topology list|show`: machines by name, by a file with numbers, as
drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from matrixcommon.model.errors import Conflict, InvalidField
from matrixresource.machines import DEFAULT_FILE, built_in_specs
from services.catalogue import PROCESSES
from services.matrixctl.supervisor.machine import machine_settings, resolve_machine, store_machine_file
from services.matrixctl.supervisor.machine_check import check_topology, ready_timeout_wall_s
from services.matrixctl.supervisor.state_folder import Stack, StackTime, StateFolder
from tests.services.matrixctl.inprocess import run_matrixctl


@pytest.fixture
def numbers(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(DEFAULT_FILE.read_text()) | {"model": "Mine"}))
    return file


def test_who_knows_a_supernode_by_its_numbers_is_told_the_machine(numbers):
    for named in ("atlas-950", str(numbers)):
        given = {process.name: machine_settings(process.name, named) for process in PROCESSES}
        assert {name for name, settings in given.items() if settings} == {"resource", "link", "agents"}
        assert given["link"] == {"SPEC": named}
    assert machine_settings("resource", "drawn.json") == {"TOPOLOGY": "drawn.json"}
    assert machine_settings("link", "drawn.json") == machine_settings("resource", "") == {}


def test_a_file_is_named_by_its_whole_path_and_a_machine_by_its_name(numbers, tmp_path, monkeypatch):
    monkeypatch.chdir(numbers.parent)
    new = StateFolder(tmp_path / "new")
    assert check_topology("mine.yaml", new) == str(numbers)
    assert check_topology("atlas-800i-a2", new) == "atlas-800i-a2"
    assert check_topology("", new) == ""
    assert not new.path.exists()


def begun(folder: StateFolder, topology: str) -> StateFolder:
    """With a state of that machine, as a supervisor leaves it."""
    folder.prepare()
    folder.write(Stack((), StackTime(1, 0, 0), topology=store_machine_file(topology, folder)))
    return folder


def test_a_state_has_a_copy_of_its_machine(numbers, tmp_path):
    """What becomes of the file it was begun with changes nothing; another machine is refused."""
    folder = begun(StateFolder(tmp_path / "state"), str(numbers))
    stack = folder.read()
    assert stack.topology == "machine.yaml"
    assert store_machine_file(stack.topology, folder) == "machine.yaml"
    assert machine_settings("link", resolve_machine(stack.topology, folder)) == {
        "SPEC": str(folder.path / "machine.yaml")
    }
    assert check_topology(str(numbers), folder) == "", "it is the one that it has"
    numbers.write_text(numbers.read_text() + "# of today")
    with pytest.raises(
        Conflict, match=r"this state folder has supernodes of machine\.yaml; use another --state for .*mine"
    ):
        check_topology(str(numbers), folder)
    numbers.unlink()
    assert check_topology("", folder) == ""
    assert "model: Mine" in Path(resolve_machine(stack.topology, folder)).read_text()
    (folder.path / "machine.yaml").unlink()
    with pytest.raises(Conflict, match=r"the file with this stack's machine, machine\.yaml, is missing"):
        check_topology("", folder)


def test_a_state_of_an_earlier_version_has_its_users_file_until_it_is_started(numbers, tmp_path):
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    folder.write(Stack((), StackTime(1, 0, 0), topology=str(numbers)))
    assert resolve_machine(str(numbers), folder) == str(numbers)
    assert check_topology(str(numbers), folder) == ""
    assert store_machine_file(str(numbers), folder) == "machine.yaml"


def test_what_is_no_machine_is_refused_before_anything_starts(numbers, tmp_path):
    new = StateFolder(tmp_path / "new")
    with pytest.raises(InvalidField, match="the machines are atlas-800i-a2, atlas-950, cloudmatrix384") as refused:
        check_topology("abacus", new)
    assert refused.value.field == "--topology"
    document = yaml.safe_load(numbers.read_text())
    document["node"]["npus"]["value"] = 7
    numbers.write_text(yaml.safe_dump(document))
    with pytest.raises(InvalidField) as wrong:
        check_topology(str(numbers), new)
    assert wrong.value.field.startswith("node.")
    published = begun(StateFolder(tmp_path / "published"), "")
    assert check_topology("cloudmatrix384", published) == ""
    with pytest.raises(Conflict, match="this state folder has supernodes of cloudmatrix384; use another --state"):
        check_topology("atlas-950", published)


def test_a_stack_of_many_nodes_may_take_longer_until_it_is_ready(tmp_path):
    new = StateFolder(tmp_path / "new")
    assert [ready_timeout_wall_s(new, each) for each in ("", "drawn.json", "atlas-950")] == [120, 120, 512]
    assert ready_timeout_wall_s(begun(StateFolder(tmp_path / "state"), "atlas-950"), "") == 512


def test_machines_are_listed_and_shown_with_how_sure_each_figure_is(capsys):
    code, out, _ = run_matrixctl(capsys, "topology", "list", "-o", "json")
    listed = {each["name"]: each for each in json.loads(out)["items"]}
    assert (code, set(listed)) == (0, set(built_in_specs()))
    assert (listed["atlas-950"]["npus"], listed["atlas-950"]["nodes"]) == (8192, 1024)
    code, out, _ = run_matrixctl(capsys, "topology", "show", "atlas-800i-a2", "-o", "json")
    figures = {each["figure"]: each for each in json.loads(out)["items"]}
    assert (code, figures["ub.l2_per_sub_plane"]["value"]) == (0, 0)
    assert {each["mark"] for each in figures.values()} == {"C1", "REC", "ASSUMED", "DER"}
    code, _, err = run_matrixctl(capsys, "topology", "show", "abacus")
    assert code == 1
    assert "built-in machines are atlas-800i-a2" in err

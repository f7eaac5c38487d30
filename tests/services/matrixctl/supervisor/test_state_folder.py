"""A state folder that several processes prepare at once."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from matrixcommon.model.errors import Unauthorized
from services.catalogue import PROCESSES
from services.chassis.access import Principal, Tokens, add_token, read_tokens
from services.matrixctl.supervisor.state_folder import Stack, StackTime, StateFolder, Unreadable

AT_ONCE = 3
ROUNDS = 8


def prepared_in_a_fork(folder: StateFolder, gate: int) -> int:
    """Its pid; it begins when the gate is closed by everybody else."""
    pid = os.fork()
    if pid == 0:
        try:
            os.read(gate, 1)
            folder.prepare()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return pid


def test_of_several_at_once_each_finds_what_the_first_made(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        folder = StateFolder(tmp_path / str(number))
        gate, key = os.pipe()
        pids = [prepared_in_a_fork(folder, gate) for _ in range(AT_ONCE)]
        os.write(key, b"." * AT_ONCE)
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * AT_ONCE
        os.close(gate)
        os.close(key)
        calling = [process for process in PROCESSES if process.role]
        assert len(read_tokens(folder.tokens)) == len(calling) + 1, "no token was made twice"
        assert Tokens(folder.tokens).principal(f"Bearer {folder.admin_token()}").role == "admin"


def test_an_empty_file_of_a_token_is_made_anew_and_nobody_gets_in_by_it(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    (tmp_path / "admin-token").touch()
    folder.prepare()
    assert folder.admin_token()
    add_token(folder.tokens, "", Principal("matrixctl", "default", "admin"))
    with pytest.raises(Unauthorized):
        Tokens(folder.tokens).principal("Bearer ")


@pytest.mark.parametrize("content", ["", "{}", '{"changes": [{"speed": 1}]}', "junk"])
def test_a_damaged_clock_does_not_keep_the_stack_from_being_read(tmp_path: Path, content: str) -> None:
    folder = StateFolder(tmp_path)
    stack = Stack(PROCESSES, StackTime(30.0, 100.0, 5000.0))
    folder.write(stack)
    folder.clock_file.write_text(content)
    assert folder.read() == stack, "`down` stops it, and `up` writes its clock again"


def test_damage_of_the_stacks_record_is_told_in_one_line_with_the_way_out(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.stack_file.write_text('{"a')
    with pytest.raises(Unreadable) as refused:
        folder.read()
    assert "stack.json is damaged (Invalid JSON: " in refused.value.message
    assert "`matrixctl up` continues with the databases" in refused.value.message
    assert "pydantic" not in refused.value.message

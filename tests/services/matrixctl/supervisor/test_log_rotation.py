"""Logs stay bounded, whoever writes them, and lose nothing."""

from __future__ import annotations

import errno
import shutil

from services.matrixctl.supervisor.log_rotation import LOG_BYTES_MAX, rotate, rotate_all


def test_a_log_begins_anew_and_its_writer_goes_on(tmp_path):
    file = tmp_path / "resource.log"
    with file.open("ab", buffering=0) as writer:
        for turn in range(5):
            writer.write(b"%d" % turn * 100)
            assert rotate(file, bytes_max=100, kept=2)
            assert file.read_bytes() == b""
        writer.write(b"after")
    assert file.read_bytes() == b"after"
    assert (tmp_path / "resource.log.1").read_bytes() == b"4" * 100
    assert (tmp_path / "resource.log.2").read_bytes() == b"3" * 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resource.log", "resource.log.1", "resource.log.2"]


def test_a_short_log_is_left_alone_and_a_missing_one_is_no_error(tmp_path):
    file = tmp_path / "link.log"
    file.write_bytes(b"x" * 99)
    assert not rotate(file, bytes_max=100)
    assert not rotate(tmp_path / "none.log", bytes_max=100)
    assert rotate_all(tmp_path) == []
    assert file.read_bytes() == b"x" * 99


def test_a_disk_without_room_for_the_copy_keeps_the_log_and_no_half_of_it(tmp_path, monkeypatch):
    file = tmp_path / "link.log"
    file.write_bytes(b"x" * LOG_BYTES_MAX)

    def full(source, target):
        target.write(source.read(100))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    assert rotate_all(tmp_path) == []
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("link.log", LOG_BYTES_MAX)]

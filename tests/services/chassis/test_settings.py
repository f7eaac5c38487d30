"""A setting that is wrong ends a process with one line, whether that shows when it is read or when it is used."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from services.chassis import run
from services.chassis.http_server.serving import serve
from services.chassis.settings import Settings
from services.console import main as console
from services.node_agent import main as agents
from services.resource import main as resource


@pytest.fixture(autouse=True)
def _logging_stays_the_tests_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run, console, agents):
        monkeypatch.setattr(module, "configure_logging", lambda *_: None)


@pytest.mark.parametrize(
    ("main", "flag", "value", "line"),
    [
        (
            resource.main,
            "--log-level",
            "LOUD",
            "resource: --log-level (CLOUDMATRIX_LOG_LEVEL): Input should be 'DEBUG'",
        ),
        (resource.main, "--spec", "nowhere.yaml", "resource: --spec (CLOUDMATRIX_SPEC): 'nowhere.yaml' is neither a"),
        (resource.main, "--topology", "nowhere.json", "resource: there is no file nowhere.json"),
        (agents.main, "--stages", "nowhere.yaml", "agents: [Errno 2] No such file or directory: 'nowhere.yaml'"),
        (agents.main, "--spec", __file__, "agents: "),
        (console.main, "--clock-file", "nowhere.json", "console: [Errno 2] No such file or directory: 'nowhere.json'"),
    ],
)
def test_a_wrong_setting_is_one_line(
    main: Callable[..., None], flag: str, value: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([flag, value, "--state", str(tmp_path)])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(line)
    assert printed.count("\n") == 1


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SystemExit, match=f"^cannot listen on 127.0.0.1, port {port}: .*already in use"):
            serve(lambda *_: None, Settings(port=port))  # type: ignore[arg-type]

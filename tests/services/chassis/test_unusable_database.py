"""A database that cannot be used ends a process with one line that names the setting and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.exc import OperationalError

from services.chassis import database, run
from services.compute import main as compute
from services.infer import main as infer
from services.kube import main as kube
from services.link import main as link
from services.resource import main as resource
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres

SETTING = "--database (CLOUDMATRIX_DATABASE): "


@pytest.fixture(autouse=True)
def _at_once_and_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "configure_logging", lambda *_: None)
    monkeypatch.setattr(database, "CONNECT_ATTEMPTS", 2)
    monkeypatch.setattr(database, "CONNECT_PAUSE_WALL_S", 0.0)


def ended(main: Callable[..., None], url: str, folder: Path) -> tuple[int, str]:
    """The exit code that a process ends with over such a database, and its last line."""
    with pytest.raises(SystemExit) as end:
        main(["--state", str(folder / "state"), "--port", "0", *(["--database", url] if url else [])])
    return (end.value.code, "") if isinstance(end.value.code, int) else (1, str(end.value.code))


@pytest.mark.parametrize("main", [resource.main, link.main, compute.main, infer.main, kube.main])
@pytest.mark.parametrize(
    "url",
    [
        "resource.db",
        "mongodb://host/x",
        "mysql://host/x",
        "postgresql+psycopg2://host/x",
        "postgresql+asyncpg://host/x",
        "sqlite+aiosqlite:///a.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
    ],
)
def test_what_is_no_database_is_a_wrong_setting(
    main: Callable[..., None], url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _ = ended(main, url, tmp_path)
    printed = capfd.readouterr().err
    assert code == 2
    assert SETTING in printed
    assert "sqlite:///FILE or postgresql://USER@HOST/NAME" in printed
    assert printed.count("\n") == 1


def test_a_port_that_is_no_number_is_a_wrong_setting(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _ = ended(resource.main, "postgresql://me:secret@127.0.0.1:port/x", tmp_path)
    printed = capfd.readouterr().err
    assert (code, "secret" in printed, printed.count("\n")) == (2, False, 1)
    assert printed.startswith(f"resource: {SETTING}postgresql+psycopg://127.0.0.1:port/x: ")


@pytest.mark.parametrize("url", ["sqlite:////{}", "sqlite:////{}/not/there.db", "sqlite:////{}/other"])
def test_a_file_that_is_none_or_another_is_one_line(url: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no database " * 100)
    url = url.format(str(tmp_path).removeprefix("/"))
    code, line = ended(resource.main, url, tmp_path)
    assert code == 1
    assert line.startswith(f"resource: {SETTING}{url}: ")
    assert "\n" not in line


def test_without_a_setting_it_is_the_state_folders(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "resource.db").mkdir()
    code, line = ended(resource.main, "", tmp_path)
    assert (code, line.startswith("resource: --state (CLOUDMATRIX_STATE): sqlite:///")) == (1, True)


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    code, line = ended(resource.main, "postgresql://me:secret@127.0.0.1:1/x", tmp_path)
    assert code == 1
    assert line.startswith(f"resource: {SETTING}postgresql+psycopg://127.0.0.1:1/x: ")
    assert ("refused" in line, "secret" in line, "\n" in line) == (True, False, False)


def test_a_file_that_takes_no_writes_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which shows when the service first writes, after its tables were found to be right."""

    def build(settings: object, clock: object, engine: database.DatabaseEngine) -> None:
        event.listen(engine.engine, "connect", lambda each, _: each.execute("PRAGMA query_only=ON"))
        engine.engine.dispose()
        with engine.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM changes")

    main = run.service_main(resource.ResourceSettings, resource.MIGRATIONS, build)  # type: ignore[arg-type]
    code, line = ended(main, "", tmp_path)
    assert (code, "readonly database" in line, "\n" in line) == (1, True, False)


def test_what_is_the_services_own_fault_is_not_laid_on_the_database(tmp_path: Path) -> None:
    def build(settings: object, clock: object, engine: database.DatabaseEngine) -> None:
        with engine.engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO journal_head (id) VALUES (1)")

    with pytest.raises(Exception, match="NOT NULL") as wrong:
        ended(run.service_main(resource.ResourceSettings, resource.MIGRATIONS, build), "", tmp_path)  # type: ignore[arg-type]
    assert not isinstance(wrong.value, OperationalError)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of one that a guest may enter, and nothing else."""
    with a_postgres() as url:
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE ROLE guest LOGIN")
        engine.dispose()
        yield url


@needs_postgres
@pytest.mark.parametrize(
    ("user", "name", "why"),
    [("guest", "postgres", "permission denied"), ("nobody", "postgres", '"nobody"'), ("guest", "other", '"other"')],
)
def test_who_may_not_is_refused_in_one_line(server: str, user: str, name: str, why: str, tmp_path: Path) -> None:
    url = server.replace("tests@", f"{user}@").replace("/postgres", f"/{name}")
    code, line = ended(resource.main, url, tmp_path)
    assert (code, line.startswith(f"resource: {SETTING}postgresql+psycopg://127.0.0.1:")) == (1, True)
    assert (why in line, "\n" in line) == (True, False)

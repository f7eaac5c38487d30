"""What containers are shown of a stack's folder: each its own secrets, and no other's."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from matrixcommon.emulation.stack_clock import read_timeline
from services.catalogue import PROCESSES
from services.chassis.access import Tokens, create_token
from services.matrixctl.demo import in_container
from services.matrixctl.demo.run import DEMOS
from services.matrixctl.supervisor.container_entrypoint import DATABASES, change_owner, load_settings, prepare
from services.matrixctl.supervisor.state_folder import StateFolder
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres

ROOT = Path(__file__).resolve().parents[3]
STATE = "${CLOUDMATRIX_STATE:-./.state/compose}"


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path / "state")
    prepare(folder, 60.0)
    return folder


def mounted(folder: StateFolder, service: str) -> dict[str, Path]:
    """What a container sees where, as docker-compose.yml has it."""
    volumes = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][service]["volumes"]
    pairs = [str(each).removeprefix(STATE).removesuffix(":ro").partition(":") for each in volumes if STATE in each]
    return {inside: folder.path / outside.lstrip("/") for outside, _, inside in pairs}


def settings(folder: StateFolder, service: str) -> dict[str, str]:
    environ: dict[str, str] = {}
    load_settings(mounted(folder, service)["/state"], environ)
    return environ


def text_of(places: dict[str, Path]) -> str:
    files = [file for place in places.values() for file in place.rglob("*") if file.is_file()]
    return "\n".join(file.read_text() for file in files)


def test_a_container_sees_its_own_secrets_and_no_other(folder: StateFolder) -> None:
    passwords = json.loads((folder.path / "database-passwords").read_text())
    secret = {process.name: {folder.token_of(process), passwords.get(process.name, "")} - {""} for process in PROCESSES}
    assert len(set().union(*secret.values())) == sum(map(len, secret.values())), "each has its own"
    for process in PROCESSES:
        seen = text_of(mounted(folder, process.name))
        for owner, words in secret.items():
            assert all((word in seen) == (owner == process.name) for word in words), (process.name, owner)
        assert passwords["superuser"] not in seen
        # The Kubernetes API is where administrators come in; its token there is the stack's.
        assert (folder.admin_token() in seen) == (process.name == "kube")


def test_tokens_have_the_roles_their_calls_need(folder: StateFolder) -> None:
    tokens = Tokens(mounted(folder, "resource")["/shared"] / "tokens.json")
    assert settings(folder, "resource")["CLOUDMATRIX_TOKENS"] == "/shared/tokens.json"
    for process in PROCESSES:
        token = settings(folder, process.name)["CLOUDMATRIX_TOKEN"]
        assert bool(token) == bool(process.role)
        assert not token or tokens.principal(f"Bearer {token}").role == process.role


def test_a_token_made_outside_is_known_inside(folder: StateFolder) -> None:
    tokens = Tokens(mounted(folder, "compute")["/shared"] / "tokens.json")
    token = create_token(folder.tokens, "eve", "red", "viewer")
    assert tokens.principal(f"Bearer {token}").name == "eve"
    assert folder.tokens.is_symlink()


def test_prepared_again_nothing_secret_changes_and_time_continues(folder: StateFolder) -> None:
    before = {process.name: settings(folder, process.name) for process in PROCESSES}
    sql = (folder.path / "postgres" / "first-start" / "databases.sql").read_text()
    clock = (mounted(folder, "compute")["/shared"] / "clock.json").read_text()
    prepare(folder, 60.0)
    assert (mounted(folder, "compute")["/shared"] / "clock.json").read_text() == clock
    assert (folder.path / "postgres" / "first-start" / "databases.sql").read_text() == sql
    for process in PROCESSES:
        assert settings(folder, process.name) == before[process.name]
        assert before[process.name]["CLOUDMATRIX_CLOCK_FILE"] == "/shared/clock.json"
    prepare(folder, 10.0)
    changes = read_timeline(folder.clock_file).changes
    assert [each.speed for each in changes] == [60.0, 10.0]
    assert folder.clock_file.is_symlink()


def test_the_operator_trusts_the_api_it_is_shown(folder: StateFolder) -> None:
    config = yaml.safe_load((mounted(folder, "operator")["/state"] / "kubeconfig").read_text())
    assert settings(folder, "operator")["CLOUDMATRIX_KUBECONFIG"] == "/state/kubeconfig"
    assert config["clusters"][0]["cluster"]["server"] == "https://kube:8443"
    assert config["users"][0]["user"]["token"] == settings(folder, "kube")["CLOUDMATRIX_KUBE_OPERATOR_TOKEN"]
    (mounted(folder, "kube")["/state"] / "kubeconfig").write_text("written by the API")
    assert folder.kubeconfig.read_text() == "written by the API"


def test_the_stories_container_has_the_stacks_addresses_inside_and_an_administrators_token(folder: StateFolder) -> None:
    inside = StateFolder(mounted(folder, "failover")["/state"])
    stack = inside.read()
    assert stack is not None
    assert {name: child.url for name, child in stack.children.items()} == {
        process.name: f"{process.scheme}://{process.name}:{process.port}" for process in PROCESSES
    }
    assert inside.admin_token() == folder.admin_token()
    config = yaml.safe_load(inside.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://kube:8443"
    assert config["users"][0]["user"]["token"] == settings(folder, "kube")["CLOUDMATRIX_KUBE_ADMIN_TOKEN"]


def test_a_story_told_at_another_pace_is_refused_with_the_way_out(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STATE", str(mounted(folder, "autoscale")["/state"]))
    assert in_container.main(["autoscale"]) == 2
    assert "CLOUDMATRIX_TIME_SCALE=15" in " ".join(capsys.readouterr().out.split())
    assert in_container.main(["autoscaling"]) == 2
    assert "there is no demo 'autoscaling'; choose from failover, autoscale" in capsys.readouterr().err
    assert set(DEMOS) < set(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])


def test_the_folder_is_given_to_who_the_processes_run_as(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(os, "chown", lambda path, uid, gid, follow_symlinks: given.update({str(path): (uid, gid)}))
    change_owner(folder.path, "10001:10002")
    assert set(given.values()) == {(10001, 10002)}
    assert set(given) == {str(folder.path), *map(str, folder.path.rglob("*"))}
    files = [file for file in folder.path.rglob("*") if file.is_file() and not file.is_symlink()]
    loose = {file.name for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077}
    assert loose == {"databases.sql", "password", "tokens.lock", "ca.crt", "server.crt"}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["resource", "nobody"])
def test_a_container_that_was_not_prepared_says_so_in_a_line(tmp_path: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "services.matrixctl.supervisor.container_entrypoint", name],
        env=os.environ | {"CLOUDMATRIX_STATE": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@needs_postgres
def test_a_role_enters_its_own_database_and_no_other(folder: StateFolder) -> None:
    import psycopg

    sql = (folder.path / "postgres" / "first-start" / "databases.sql").read_text()
    with a_postgres() as url:
        with psycopg.connect(url, autocommit=True) as superuser:
            for statement in re.findall(r"^[^-].*;$", sql, re.MULTILINE):
                superuser.execute(statement)
        for owner in DATABASES:
            for database in DATABASES:
                own = url.replace("tests@", f"{owner}@").replace("/postgres", f"/{database}")
                if owner != database:
                    with pytest.raises(psycopg.OperationalError, match="permission denied"):
                        psycopg.connect(own)
                    continue
                with psycopg.connect(own) as connection:
                    connection.execute("CREATE TABLE things (name text)")

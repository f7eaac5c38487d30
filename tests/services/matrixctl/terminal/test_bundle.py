"""`matrixctl bundle`: everything a report needs in one file, and no token, key or password in it."""

from __future__ import annotations

import errno
import json
import stat
import tarfile
from pathlib import Path

import pytest

from services.matrixctl.bundle.collect import Bundle
from services.matrixctl.bundle.redaction import REPLACEMENT, Redactor, find_secrets
from services.matrixctl.supervisor.state_folder import StateFolder
from tests.services.matrixctl.conftest import SupervisedStack
from tests.services.matrixctl.inprocess import run_matrixctl

KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBkg4LVWM9nuwNSk3yByxZpYRTBnVJk7oXsf3v0aQ2Y1oAoGCCqGSM49\n-----END EC PRIVATE KEY-----\n"
KUBECONFIG = (
    "users:\n- name: a\n  user:\n    token: kube-secret-of-the-admin\n    client-key-data: TUhjQ0FRRUVJQmtnNExWV005\n"
)


def content(file: Path) -> dict[str, str]:
    with tarfile.open(file) as tar:
        return {
            member.name.removeprefix("bundle/"): tar.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in tar.getmembers()
        }


def plant(folder: StateFolder) -> set[str]:
    """Secrets of every sort in the state folder, and each of them in a log."""
    (folder.path / "kube").mkdir(exist_ok=True)
    (folder.path / "kube" / "ca.key").write_text(KEY)
    (folder.path / "kube" / "tokens.json").write_text(
        json.dumps({"tokens": {"admin": {"token": "token-of-the-api"}}, "signingKey": "key-that-signs-others"})
    )
    folder.kubeconfig.write_text(KUBECONFIG)
    (folder.path / "database-passwords").write_text(json.dumps({"link": "pass-word-of-link"}))
    secrets = find_secrets(folder.path)
    lines = [f'{{"event": "called", "header": "Bearer {secret}"}}' for secret in sorted(secrets) if "\n" not in secret]
    foreign = "Authorization: Bearer abcdefgh12345678 postgresql://me:hunter22@host/db\n"
    (folder.logs / "alpha.log").write_text("\n".join(lines) + "\n" + KEY + foreign)
    return secrets


def test_no_token_key_or_password_of_a_running_stack_is_in_it(
    supervised_stack: SupervisedStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    supervised_stack.up(database="postgresql://me:hunter22@127.0.0.1/cm_{service}")
    secrets = plant(supervised_stack.folder)
    assert {"token-of-the-api", "key-that-signs-others"} <= secrets
    assert {"kube-secret-of-the-admin", "pass-word-of-link", supervised_stack.folder.admin_token()} <= secrets
    target = tmp_path / "b.tar.gz"
    code, out, _ = run_matrixctl(capsys, "bundle", "--state", str(supervised_stack.folder.path), "--file", str(target))
    assert code == 0
    assert str(target) in " ".join(out.split())
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    members = content(target)
    text = "\n".join(members.values())
    for secret in (*secrets, "hunter22", "abcdefgh12345678", "PRIVATE KEY"):
        assert secret not in text
    assert json.loads(members["manifest.json"])["secretsHidden"] >= len(secrets) - 1
    assert REPLACEMENT in members["logs/alpha.log"]
    assert json.loads(members["status.json"])["running"] is True
    assert json.loads(members["versions.json"])["packages"]["pydantic"]
    assert [each["name"] for each in json.loads(members["stack.json"])["processes"]] == ["alpha", "beta"]


def test_of_a_stack_that_is_down_it_has_what_there_is_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    (folder.logs / "link.log").write_text("x" * 100_000 + "\nthe last line\n")
    target = tmp_path / "b.tar.gz"
    code, out, _ = run_matrixctl(
        capsys, "bundle", "--state", str(folder.path), "--file", str(target), "--log-mib", "0.02"
    )
    assert code == 0
    assert "without services: no stack runs in" in " ".join(out.split())
    members = content(target)
    assert members["logs/link.log"] == "the last line\n"
    assert "services" in json.loads(members["manifest.json"])["missing"]


def test_no_stack_and_no_such_folder_are_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_matrixctl(capsys, "bundle", "--state", str(tmp_path / "none"))
    assert (code, err.startswith("NotRunning: ")) == (3, True)
    StateFolder(tmp_path / "state").prepare()
    code, _, err = run_matrixctl(
        capsys, "bundle", "--state", str(tmp_path / "state"), "--file", str(tmp_path / "no" / "b")
    )
    assert (code, "[field --file]" in err) == (2, True)
    assert not list(tmp_path.rglob("*.tar.gz"))


def test_what_looks_like_a_secret_is_hidden_wherever_it_came_from() -> None:
    redactor = Redactor(set())
    text = "cm_0123456789abcdefghij eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJzYSJ9.c2ln 'password': 'geheim' plain text"
    assert redactor.redact(text) == f"{REPLACEMENT} {REPLACEMENT} 'password': '{REPLACEMENT}' plain text"
    assert redactor.found == 3


@pytest.mark.parametrize("name", ["tokens.json", "stack.json", "clock.json", "kubeconfig", "database-passwords"])
@pytest.mark.parametrize("damage", ['{{"a": "{0}', "a: [{0}", "\x00{0}"])
def test_a_damaged_file_hinders_no_report_and_lets_no_secret_out(
    name: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    secret = "word-that-nobody-may-read"
    (folder.path / name).write_text(damage.format(secret))
    (folder.logs / "alpha.log").write_text(f"{secret}\n")
    code, _, err = run_matrixctl(capsys, "bundle", "--state", str(folder.path), "--file", str(tmp_path / "b.tar.gz"))
    assert (code, err) == (0, "")
    members = content(tmp_path / "b.tar.gz")
    assert "logs/alpha.log" in members
    assert (members["logs/alpha.log"] == f"{REPLACEMENT}\n") == (name not in ("stack.json", "clock.json"))


def test_a_bundle_that_cannot_be_written_leaves_no_half_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="No space left"):
        Bundle(folder, 1000, lambda _: None).write(tmp_path / "b.tar.gz")
    assert [each.name for each in tmp_path.iterdir()] == ["state"]

"""Files that users name: whatever lies in one, a command takes it or refuses it in a line, and sends nothing of it."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from services.matrixctl.clients.input_files import read_manifests, read_mapping
from tests.services.matrixctl.inprocess import run_matrixctl

BROKEN = {
    "bytes": bytes(range(128, 256)),
    "unbalanced": b"a: [1,\n b: }",
    "control": b"\x00\x01",
    "text": b"just text",
    "list": b"- 1\n- 2",
    "nothing": b"",
    "nan": b"{apiVersion: v1, kind: X, metadata: {name: x}, spec: {npus: .nan}, target: {node: sn0-c00-n0}}",
    "deep": b"[" * 1500,
    "deeper": b'{"a":' * 1500,
    "half": b"{apiVersion: v1, kind: X, metadata: {name: x}}\n---\nkind: X",
}
COMMANDS = (
    "apply -f {}.yaml",
    "delete -f {}.yaml",
    "put peering p -f {}.yaml",
    "convert -f {}.yaml",
    "plan -f {}.yaml",
    "maintenance create m -f {}.yaml",
    "supernode add sn1 -f {}.yaml",
    "supernode add sn1 --file {}.json",
    "topology check {}.json",
    "up --topology {}.yaml",
    "up --topology {}.json",
    "experiment run --trace {}.jsonl",
    "experiment run --generate 5 --model {}.yaml",
    "scenario run {}.yaml",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_file_that_makes_no_sense_is_refused_in_a_line(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = [] if line.startswith(("topology check", "experiment", "convert")) else ["--state", str(tmp_path / "state")]
    for name, content in BROKEN.items():
        words = line.format(tmp_path / name).split()
        Path(next(word for word in words if word.startswith(str(tmp_path)))).write_bytes(content)
        code, out, err = run_matrixctl(capsys, *words, *state)
        assert (code in (1, 2, 3), out, err.count("\n")) == (True, "", 1), (name, err)
        assert "NotRunning" not in err, "the file is what is refused"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "cut.jsonl.gz",
            gzip.compress(b'{"timestamp": 0}\n' * 99, mtime=0)[:20],
            "cannot be read: Compressed file ended",
        ),
        ("moment.jsonl", b'{"timestamp": NaN, "input_length": 9, "output_length": 9}', "line 1 is not JSON"),
        ("length.jsonl", b'{"timestamp": 0, "input_length": 1e400, "output_length": 9}', "line 1 is not JSON"),
    ],
    ids=["cut", "moment", "length"],
)
def test_a_trace_that_makes_no_sense_is_refused_with_its_line(
    name: str, content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    code, out, err = run_matrixctl(capsys, "experiment", "run", "--trace", str(tmp_path / name))
    assert (code, out, sentence in err) == (2, "", True), err


def test_a_moment_is_a_word(tmp_path: Path) -> None:
    """As in Kubernetes: whoever writes one without quotes means the text that a request carries."""
    (tmp_path / "m.yaml").write_text("notBefore: 2031-01-31T08:00:00Z\ndays: [2031-01-31]\n")
    assert read_mapping(tmp_path / "m.yaml") == {"notBefore": "2031-01-31T08:00:00Z", "days": ["2031-01-31"]}


def test_the_objects_of_a_list_are_its_manifests(tmp_path: Path) -> None:
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in "ab"]
    (tmp_path / "l.yaml").write_text(f"apiVersion: v1\nkind: List\nitems: {objects}\n---\n---\n{objects[0]}\n")
    assert read_manifests(tmp_path / "l.yaml") == [*objects, objects[0]]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}"))
    assert run_matrixctl(capsys, "convert", "-f", "-", "-o", "name")[:2] == (0, "ConfigMap/c\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = run_matrixctl(capsys, "convert", "-f", "-")
    assert (code, "there is no object in standard input" in err) == (2, True), err


def test_a_list_of_objects_is_converted_as_its_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kubectl get -o yaml` prints one."""
    queue = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q}}"
    kept = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}"
    (tmp_path / "l.yaml").write_text(f"{{apiVersion: v1, kind: List, items: [{queue}, {kept}]}}")
    code, out, err = run_matrixctl(capsys, "convert", "-f", str(tmp_path / "l.yaml"), "-o", "name")
    assert (code, out, "# Queue/q: the object: left out" in err) == (0, "ConfigMap/c\n", True), err


@pytest.mark.parametrize(
    ("words", "field", "accepted"),
    [
        ("get nodes -o xml", "'--output' / '-o'", "'xml' is not one of 'table', 'wide', 'json', 'yaml', 'name'"),
        ("experiment run --generate 9 -o name", "'--output' / '-o'", "'table', 'wide', 'json', 'yaml'"),
        ("experiment run --generate 9 --cache-plane rdma", "'--cache-plane'", "'rdma' is not one of 'ub', 'vpc'"),
        ("experiment sweep --generate 9 --over nodes=8 --microbatch maybe", "'--microbatch'", "'auto', 'on', 'off'"),
        ("explain pod -o xml", "'--output' / '-o'", "'xml' is not one of"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_choices(
    words: str, field: str, accepted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_matrixctl(capsys, *words.split())
    printed = " ".join(err.translate(str.maketrans("│╭╮╰╯─", "      ")).split())
    assert (code, out) == (2, "")
    assert f"Invalid value for {field}: " in printed
    assert accepted in printed
    assert "Value error" not in printed

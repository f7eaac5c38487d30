"""Whether a process is ready, as seen from outside, whatever answers there."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from matrixcontainer.kubeapi.transport.certificates import certificate_files, ensure_certificates
from services.matrixctl.supervisor.probe import Readiness, free_port, probe_readiness


@contextmanager
def answering(sent: bytes, context: ssl.SSLContext | None = None):
    """The URL of something that says this to whoever asks, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    taken, _ = listener.accept()
                    with context.wrap_socket(taken, server_side=True) if context else taken as client:
                        client.recv(4096)
                        client.sendall(sent)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"{'https' if context else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def answer(status: str, body: str = "", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


@pytest.mark.parametrize(
    ("sent", "pid", "expected"),
    [
        (answer("200 OK", "ok"), 0, Readiness(True, True)),
        (answer("200 OK", X_Process_Id="7"), 7, Readiness(True, True)),
        (answer("503 no", '{"waitingFor": "the database"}'), 0, Readiness(True, False, "the database")),
        (answer("503 no", "[]"), 0, Readiness(True, False, "[]")),
        (answer("500 no"), 0, Readiness(True, False, "not ready")),
        (answer("401 who?", "a token"), 0, Readiness(True, False, "a token")),
    ],
)
def test_what_it_answers_says_whether_it_is_ready(sent, pid, expected):
    with answering(sent) as url:
        assert probe_readiness(url, 5.0, pid) == expected


def test_another_process_in_its_place_is_not_it():
    with answering(answer("200 OK", X_Process_Id="7")) as url:
        found = probe_readiness(url, 5.0, pid=8)
    assert (found.alive, found.ready) == (False, False)
    assert "another process (7)" in found.waiting_for


@pytest.mark.parametrize("sent", [b"", b"SSH-2.0-OpenSSH\r\n"])
def test_what_is_no_whole_answer_is_none(sent):
    with answering(sent) as url:
        found = probe_readiness(url, 5.0)
    assert (found.alive, found.ready) == (False, False)
    assert found.waiting_for.startswith("no answer: ")


def test_a_certificate_of_nobody_we_know_is_no_hindrance(tmp_path):
    ensure_certificates(tmp_path, [])
    _, certificate, key = certificate_files(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with answering(answer("200 OK"), context) as url:
        assert probe_readiness(url, 5.0) == Readiness(True, True)


def test_nobody_listens():
    assert probe_readiness(f"http://127.0.0.1:{free_port('127.0.0.1')}", 5.0) == Readiness(
        False, False, "not listening yet"
    )


def test_what_containers_run_imports_no_client():
    code = "import sys, services.matrixctl.supervisor.probe; print('httpx' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == "False"

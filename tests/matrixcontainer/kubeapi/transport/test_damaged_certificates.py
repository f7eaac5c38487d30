"""Damaged certificates: the server's are made anew, since clients trust the authority; the authority's are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcontainer.kubeapi.transport.certificates import certificate_files, ensure_certificates
from services.kube.bootstrap import _prepare_folder
from services.kube.bootstrap_process import BootstrapError


@pytest.mark.parametrize("damaged", ["server.crt", "server.key"])
def test_damaged_server_certificate_is_made_anew_by_the_same_authority(tmp_path: Path, damaged: str) -> None:
    ensure_certificates(tmp_path, [])
    authority, certificate, key = (file.read_bytes() for file in certificate_files(tmp_path))
    (tmp_path / damaged).write_bytes(b"\xea junk")
    ensure_certificates(tmp_path, [])
    assert (tmp_path / "ca.crt").read_bytes() == authority
    assert certificate_files(tmp_path)[1].read_bytes() not in (certificate, b"\xea junk")
    assert certificate_files(tmp_path)[2].read_bytes() not in (key, b"\xea junk")


@pytest.mark.parametrize("damaged", ["ca.crt", "ca.key", "tokens.json"])
def test_damaged_identity_is_refused_in_one_line_with_the_way_out(tmp_path: Path, damaged: str) -> None:
    folder, database = tmp_path / "kube", f"sqlite:///{tmp_path / 'kube.db'}"
    _prepare_folder(folder, [], database, {})
    (folder / damaged).write_bytes(b"\xea junk")
    if damaged == "ca.key":
        (folder / "server.key").unlink()  # the authority's key is read only to sign another certificate
    with pytest.raises(BootstrapError, match=r"is damaged: .*; restore ca.crt, ca.key and tokens.json there, or move"):
        _prepare_folder(folder, [], database, {})

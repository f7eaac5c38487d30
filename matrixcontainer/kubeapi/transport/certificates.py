"""The server's certificates: a CA in the state folder, and a server certificate signed by it.

The CA persists across restarts, so that kubeconfigs stay valid. The server certificate is renewed when it is about to
expire or lacks a required name.
"""

import base64
import ipaddress
import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

CA_DAYS = 3650
SERVER_DAYS = 365
RENEW_BEFORE_DAYS = 30


def host_names(extra: list[str]) -> list[str]:
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), "kubernetes", "kubernetes.default.svc", *extra]
    return list(dict.fromkeys(name for name in names if name and name != "0.0.0.0"))


def certificate_files(folder: Path) -> tuple[Path, Path, Path]:
    """(CA certificate, server certificate, server key), PEM files in the folder."""
    return folder / "ca.crt", folder / "server.crt", folder / "server.key"


def ensure_certificates(folder: Path, extra_names: list[str]) -> None:
    """Create certificates that are missing, about to expire, or lack a name, and damaged ones of the server. Raises
    ValueError if the authority's are damaged, which clients trust."""
    folder.mkdir(parents=True, exist_ok=True)
    ca, server, server_key = certificate_files(folder)
    ca_key = folder / "ca.key"
    names = host_names(extra_names)
    if not (ca.exists() and ca_key.exists()):
        _write_ca(ca, ca_key)
    if not _is_valid(server, server_key, ca, names):
        _write_server(server, server_key, ca, ca_key, names)


def _is_valid(server: Path, key: Path, ca: Path, names: list[str]) -> bool:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    if not (server.exists() and key.exists()):
        return False
    try:
        current = x509.load_pem_x509_certificate(server.read_bytes())
        if serialization.load_pem_private_key(key.read_bytes(), None).public_key() != current.public_key():
            return False
    except ValueError:  # damaged; both are made anew
        return False
    issuer = x509.load_pem_x509_certificate(ca.read_bytes())
    found = current.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    certificate_names = {str(name.value) for name in found}
    not_expiring = current.not_valid_after_utc - datetime.now(UTC) > timedelta(days=RENEW_BEFORE_DAYS)
    return not_expiring and set(names) <= certificate_names and current.issuer == issuer.subject


def _new_key(path: Path) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return key


def _write_ca(certificate: Path, key_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    key = _new_key(key_path)
    moment = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"embedded-kube-ca-{int(moment.timestamp())}")])
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(days=1))
        .not_valid_after(moment + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))


def _write_server(certificate: Path, key_path: Path, ca: Path, ca_key: Path, names: list[str]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    issuer = x509.load_pem_x509_certificate(ca.read_bytes())
    issuer_key: Any = serialization.load_pem_private_key(ca_key.read_bytes(), None)
    key = _new_key(key_path)
    moment = datetime.now(UTC)
    listed: list[x509.GeneralName] = []
    for name in names:
        try:
            listed.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            listed.append(x509.DNSName(name))
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "embedded-kube")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(days=1))
        .not_valid_after(moment + timedelta(days=SERVER_DAYS))
        .add_extension(x509.SubjectAlternativeName(listed), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_signed_by(ca), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))


def _signed_by(ca: Path) -> Any:
    """The authority key identifier, copied from the CA: that of a CA created elsewhere need not be its key's digest."""
    from cryptography import x509

    current = x509.load_pem_x509_certificate(ca.read_bytes()).extensions
    identifier = current.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def write_kubeconfig(path: Path, server: str, ca: Path, user: str, token: str) -> None:
    """Write a self-contained kubeconfig (as JSON, which is YAML), readable only by its owner."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "cloudmatrix",
        "clusters": [
            {
                "name": "cloudmatrix",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(ca.read_bytes()).decode(),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": "cloudmatrix", "context": {"cluster": "cloudmatrix", "user": user, "namespace": "default"}}
        ],
    }
    new_file = path.with_name(path.name + ".new")
    new_file.touch(mode=0o600)
    new_file.write_text(json.dumps(document, indent=2) + "\n")
    new_file.replace(path)

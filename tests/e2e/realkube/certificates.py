"""The certificates a real control plane is started with: one CA, a serving certificate, client certificates, a key pair.

Everything is valid for a day and lies in the folder of one run.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Who connects with a certificate: file name, common name, organisation (which Kubernetes reads as a group).
CLIENTS = (
    ("admin", "admin", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
)


def write_all(folder: Path) -> None:
    """ca.crt, server.crt and .key, a .crt and .key for each client, and service-accounts.key and .pub, into `folder`."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("a-real-ca", "", authority_key.public_key(), None, authority_key)
    _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    for name, common_name, organisation in (("server", "kube-apiserver", ""), *CLIENTS):
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(common_name, organisation, key.public_key(), authority, authority_key, name == "server")
        _write(folder / f"{name}.crt", made.public_bytes(serialization.Encoding.PEM))
        _write(folder / f"{name}.key", _private(key))
    signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write(folder / "service-accounts.key", _private(signer))
    public = signer.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(folder / "service-accounts.pub", public)


def _certificate(
    common_name: str, organisation: str, public: Any, issuer: x509.Certificate | None, signer: Any, serves: bool = False
) -> x509.Certificate:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organisation:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    subject = x509.Name(parts)
    moment = datetime.now(UTC)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
    building = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(hours=1))
        .not_valid_after(moment + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if issuer is None:
        signing = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        building = building.add_extension(signing, critical=True)
        building = building.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    else:
        building = building.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if serves:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        building = building.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return building.sign(signer, hashes.SHA256())


def _private(key: Any) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)

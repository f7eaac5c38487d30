"""A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

    with RealKube(folder) as kube:
        kube.url, kube.token, kube.ca, kube.kubeconfig

Everything it writes lies in the folder: certificates, the database, one log for each program. The programs listen on free
loopback ports, are waited for on conditions, and are ended by their own process ids. There are no nodes and no kubelets,
as with the embedded API. `AS` are the users with bearer tokens: an administrator and some without any rights.
"""

import base64
import csv
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from tests.e2e.realkube.build import binaries, find_etcd
from tests.e2e.realkube.certificates import write_all

# token, user, uid, groups
AS = (
    ("admin-token", "admin", "u-admin", "system:masters"),
    ("alice-token", "alice", "u-alice", "readers"),
    ("bob-token", "bob", "u-bob", "writers"),
)
PATIENCE_S = 60.0
STOP_S = 10.0


def free_ports(count: int) -> list[int]:
    """Ports of loopback nobody listens on now."""
    current = [socket.socket() for _ in range(count)]
    for one in current:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in current]
    for one in current:
        one.close()
    return ports


class RealKube:
    """`start()` returns when API, namespaces and controllers are ready; `stop()` ends what was started."""

    def __init__(self, folder: Path, controllers: bool = True, scheduler: bool = True, grace_s: int = 50) -> None:
        """`grace_s`: how long the node controller believes a node whose Lease is not renewed."""
        self.folder = folder
        self.grace_s = grace_s
        self._with = {"kube-controller-manager": controllers, "kube-scheduler": scheduler}
        self.programs: dict[str, subprocess.Popen[bytes]] = {}
        self.token = AS[0][0]

    def __enter__(self) -> "RealKube":
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    # ---- where it is

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def client(self, timeout_s: float = 30.0) -> httpx.Client:
        """An HTTP client of the administrator."""
        headers = {"authorization": f"Bearer {self.token}"}
        verify = ssl.create_default_context(cafile=str(self.ca))
        return httpx.Client(base_url=self.url, verify=verify, headers=headers, timeout=timeout_s, trust_env=False)

    def log(self, program: str) -> str:
        path = self.folder / f"{program}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # ---- start

    def start(self) -> "RealKube":
        self.folder.mkdir(parents=True, exist_ok=True)
        write_all(self.folder)
        with open(self.folder / "tokens.csv", "w", newline="") as file:
            csv.writer(file).writerows(AS)
        etcd, peers, api, controllers, scheduler = free_ports(5)
        self.url = f"https://127.0.0.1:{api}"
        self._start_etcd(etcd, peers)
        self._start_apiserver(etcd, api)
        self.write_kubeconfig(self.kubeconfig, "admin")
        with self.client() as client:
            self._until("kube-apiserver", lambda: client.get("/readyz").status_code == 200)
            for name, port in (("kube-controller-manager", controllers), ("kube-scheduler", scheduler)):
                if self._with[name]:
                    self.start_beside(name, port)
            self._until("kube-apiserver", lambda: client.get("/api/v1/namespaces/default").status_code == 200)
            if self._with["kube-controller-manager"]:
                account = "/api/v1/namespaces/default/serviceaccounts/default"
                self._until("kube-controller-manager", lambda: client.get(account).status_code == 200)
        return self

    def _start_etcd(self, port: int, peers: int) -> None:
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        program = find_etcd()
        assert program, "etcd is missing; see missing_parts()"
        self._run("etcd", program, data_dir=self.folder / "etcd", listen_client_urls=client, advertise_client_urls=client,
                  listen_peer_urls=peer, initial_advertise_peer_urls=peer, initial_cluster=f"default={peer}")  # fmt: skip
        with httpx.Client(base_url=client, trust_env=False) as asking:
            self._until("etcd", lambda: asking.get("/health").status_code == 200)

    def _start_apiserver(self, etcd: int, port: int) -> None:
        self._run(
            "kube-apiserver",
            binaries() / "kube-apiserver",
            etcd_servers=f"http://127.0.0.1:{etcd}",
            secure_port=port,
            bind_address="127.0.0.1",
            advertise_address="127.0.0.1",
            cert_dir=self.folder,
            tls_cert_file=self.folder / "server.crt",
            tls_private_key_file=self.folder / "server.key",
            client_ca_file=self.ca,
            token_auth_file=self.folder / "tokens.csv",
            authorization_mode="RBAC",
            service_account_key_file=self.folder / "service-accounts.pub",
            service_account_signing_key_file=self.folder / "service-accounts.key",
            service_account_issuer="https://kubernetes.default.svc",
            service_cluster_ip_range="10.0.0.0/16",
            allow_privileged="true",
        )

    def start_beside(self, name: str, port: int, kubeconfig: Path | None = None) -> None:
        """The controller manager or the scheduler, on this API or on the one of another kubeconfig."""
        if kubeconfig is None:
            kubeconfig = self.folder / f"{name}.kubeconfig"
            self.write_kubeconfig(kubeconfig, name)
        flags: dict[str, Any] = {
            "kubeconfig": kubeconfig, "leader_elect": "false", "secure_port": port, "bind_address": "127.0.0.1",
            "cert_dir": self.folder / name, "authentication_skip_lookup": "true",
            "kube_api_qps": 500, "kube_api_burst": 1000,
        }  # fmt: skip
        if name == "kube-controller-manager":
            flags |= {
                "service_account_private_key_file": self.folder / "service-accounts.key",
                "root_ca_file": self.ca,
                "use_service_account_credentials": "true",
                "concurrent_namespace_syncs": 20,
                "node_monitor_grace_period": f"{self.grace_s}s",
            }
        self._run(name, binaries() / name, **flags)

    def _run(self, name: str, program: Path | str, **flags: Any) -> None:
        command = [str(program), *(f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items())]
        with open(self.folder / f"{name}.log", "ab") as log:
            self.programs[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True
            )

    def _until(self, program: str, holds: Callable[[], bool]) -> None:
        """Asks until the condition holds; a program that ended or a minute without success is an error with its log."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if holds():
                    return
            except httpx.TransportError:
                pass
            ended = self.programs[program].poll() is not None
            if ended or time.monotonic() > deadline:
                text = self.log(program)[-3000:]
                raise RuntimeError(f"{program} {'ended' if ended else 'is not ready'}; it reported last:\n{text}")
            time.sleep(0.05)

    # ---- stop

    def stop(self) -> None:
        """Ends the programs, the newest first; one that does not end in time is killed."""
        for program in reversed(self.programs.values()):
            if program.poll() is None:
                program.send_signal(signal.SIGTERM)
            try:
                program.wait(STOP_S)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
        self.programs.clear()

    def resident_mb(self) -> dict[str, float]:
        """Resident memory of each program, in MB."""
        return {name: resident_mb(program.pid) for name, program in self.programs.items()}

    def write_kubeconfig(self, path: Path, client: str) -> None:
        """A kubeconfig of one of the client certificates, with everything inside it."""

        def current(file: str) -> str:
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        cluster = {"server": self.url, "certificate-authority-data": current("ca.crt")}
        user = {"client-certificate-data": current(f"{client}.crt"), "client-key-data": current(f"{client}.key")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": client, "user": user}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": client, "namespace": "default"}}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=2) + "\n")


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

"""Builds a real Kubernetes control plane from its Go module, once for each pinned version.

kube-apiserver, kube-controller-manager and kube-scheduler are ordinary Go commands, pinned by the `go.mod` and `go.sum`
beside this file, so they are built as any other dependency is: nothing is downloaded but modules through the Go module
proxy. The first build takes about eight minutes of one core; the binaries are kept in `.cache/realkube/<key>`, where the
key is a digest of what they are made from, and later calls return at once. etcd is Debian's `etcd-server`.

What is missing is named: `missing_parts()` says in a sentence why no real control plane can be had here.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = Path(__file__).resolve().parent
REPOSITORY = MODULE.parents[2]
COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def pinned_version() -> str:
    """The Kubernetes version in go.mod, such as "v1.33.13"."""
    for line in (MODULE / "go.mod").read_text().splitlines():
        words = line.split()
        if words[:1] == ["k8s.io/kubernetes"]:
            return words[1]
    raise ValueError("go.mod does not pin k8s.io/kubernetes")


def binaries() -> Path:
    """The folder of this pinned version's binaries, built or not."""
    made_from = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("REALKUBE_CACHE") or REPOSITORY / ".cache" / "realkube")
    return cache / made_from


def find_etcd() -> str | None:
    """Where etcd is, or None."""
    return shutil.which("etcd")


def missing_parts() -> str | None:
    """Why a real control plane cannot be started here now, as one sentence; None when it can."""
    absent = [name for name in COMMANDS if not (binaries() / name).exists()]
    if absent:
        return f"{', '.join(absent)} {pinned_version()} not built here (make conformance builds them, given Go)"
    if find_etcd() is None:
        return "etcd is not installed here (Debian and Ubuntu: apt-get install etcd-server)"
    return None


def ensure_etcd() -> bool:
    """Installs etcd where we may; says loudly where we may not. True when it is there afterwards."""
    if find_etcd():
        return True
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print("NO ETCD HERE, and no way to install it: apt-get install etcd-server", file=sys.stderr)
        return False
    print("installing etcd-server", flush=True)
    quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    if subprocess.run(["apt-get", "update"], **quiet).returncode:
        print("apt-get update failed; trying with the lists that are here", file=sys.stderr)
    install = ["apt-get", "install", "-y", "--no-install-recommends", "etcd-server"]
    if subprocess.run(install, **quiet).returncode or not find_etcd():
        print("COULD NOT INSTALL etcd-server", file=sys.stderr)
        return False
    return True


def ensure_built() -> Path | None:
    """Builds what is not built yet. The folder of the binaries, or None where there is no Go (which is reported loudly)."""
    folder = binaries()
    if all((folder / name).exists() for name in COMMANDS):
        return folder
    if not shutil.which("go"):
        print("NO GO HERE: a real Kubernetes control plane cannot be built", file=sys.stderr)
        return None
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in COMMANDS:
            if not (folder / name).exists():
                print(f"building {name} {pinned_version()} (minutes, the first time)", flush=True)
                build_command(f"k8s.io/kubernetes/cmd/{name}", folder / name)
    return folder


def ensure_program(name: str) -> Path | None:
    """Builds one of the small Go programs beside this file (`informer`, `load`, `runtime`); None where there is no Go.

    One with a `go.mod` of its own is a module of its own: what it needs must not move the pins of the control plane.
    """
    program = binaries() / name
    source = MODULE / name / "main.go"
    own = (source.parent / "go.mod").exists()
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    if not shutil.which("go"):
        return None
    program.parent.mkdir(parents=True, exist_ok=True)
    if own:
        build_command(".", program, source.parent)
    else:
        build_command(f"./{name}", program)
    return program


def build_command(package: str, target: Path, module: Path = MODULE) -> None:
    """One `go build` at low priority; the target appears whole or not at all."""
    version = pinned_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamped = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = "-s -w " + " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamped.items())
    partial = target.with_suffix(".partial")
    command = ["go", "build", "-buildvcs=false", "-mod=readonly", "-ldflags", flags, "-o", str(partial), package]
    if nice := shutil.which("nice"):
        command = [nice, *command]
    subprocess.run(command, cwd=module, env={**os.environ, "GOFLAGS": "", "CGO_ENABLED": "0"}, check=True)
    partial.replace(target)


def main() -> int:
    """Builds and installs all parts; 0 when a real control plane can be started, 3 when parts cannot be had here."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    folder = ensure_built()
    if folder is None or not ensure_etcd():
        return 3
    print(f"a real control plane is ready in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

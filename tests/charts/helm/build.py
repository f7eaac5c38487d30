"""Builds Helm from its Go module, once for each pinned version.

Helm is an ordinary Go command, pinned by the `go.mod` and `go.sum` beside this file, so it is built as any other
dependency is: nothing is fetched but modules through the Go module proxy. The first build takes some minutes of one
core; the binary is kept in `.cache/helm/<key>`, where the key is a digest of the pins, and later calls return at once.
A `helm` on the path is not taken: what the golden files hold should not depend on whose Helm printed it.

    python -m tests.charts.helm.build
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = Path(__file__).resolve().parent
REPOSITORY = MODULE.parents[2]
COMMAND = "helm.sh/helm/v3/cmd/helm"


def binary() -> Path:
    """Where the pinned Helm is, built or not."""
    pins = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum")))
    cache = Path(os.environ.get("HELM_CACHE") or REPOSITORY / ".cache" / "helm")
    return cache / pins.hexdigest()[:16] / "helm"


def missing() -> str | None:
    """Why there is no Helm here now, as one sentence; None when there is."""
    if binary().exists():
        return None
    return "Helm is not built here (`make chart` builds it, given Go)"


def ensure_built() -> Path | None:
    """Build it unless it is there. None where there is no Go, which is reported loudly."""
    target = binary()
    if target.exists():
        return target
    if not shutil.which("go"):
        print("NO GO HERE: Helm cannot be built, and the tests of the chart will be skipped", file=sys.stderr)
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            print("building Helm (minutes, the first time)", flush=True)
            _build(target)
    return target


def _build(target: Path) -> None:
    """One `go build` at low priority; the target appears whole or not at all."""
    partial = target.with_suffix(".partial")
    command = ["go", "build", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w", "-o", str(partial), COMMAND]
    if nice := shutil.which("nice"):
        command = [nice, *command]
    subprocess.run(command, cwd=MODULE, env={**os.environ, "GOFLAGS": "", "CGO_ENABLED": "0"}, check=True)
    partial.replace(target)


if __name__ == "__main__":
    built = ensure_built()
    print(built or "no Helm")
    sys.exit(0 if built else 3)

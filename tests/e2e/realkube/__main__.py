"""`make realkube`: start a real control plane and keep it until interrupted.

    python -m tests.e2e.realkube [--folder DIR]

Builds what is missing first (minutes, once), then prints the kubeconfig to use.
"""

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tests.e2e.realkube.build import ensure_built, ensure_etcd, pinned_version
from tests.e2e.realkube.control_plane import RealKube


def main() -> int:
    parser = argparse.ArgumentParser(prog="make realkube", description="A real Kubernetes control plane on loopback.")
    parser.add_argument("--folder", type=Path, help="where it lives; without one, a temporary folder")
    folder = parser.parse_args().folder
    if ensure_built() is None or not ensure_etcd():
        return 3
    interrupted = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: interrupted.set())
    with tempfile.TemporaryDirectory(prefix="realkube-") as temporary, RealKube(folder or Path(temporary)) as kube:
        print(f"Kubernetes {pinned_version()} at {kube.url}; no nodes. Use it with")
        print(f"  export KUBECONFIG={kube.kubeconfig}\nand end it with Ctrl-C.", flush=True)
        interrupted.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())

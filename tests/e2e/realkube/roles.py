"""Prints the cluster roles and bindings a real API server makes at its first start: `python -m tests.e2e.realkube.roles`.

The embedded API keeps the same beside its own (`matrixcontainer/kubeapi/auth/cluster_roles.json`), so that the
programs of a real control plane may do there what they may do at home.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from matrixcontainer.kubeapi.auth.bootstrap_policy import bootstrap_roles
from tests.e2e.realkube.control_plane import RealKube

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SOURCE = (
    "ClusterRoles and bindings that kube-apiserver v1.33 makes at its first start (Apache-2.0, The Kubernetes Authors), "
    "read from one; printed by `python -m tests.e2e.realkube.roles`"
)


def main() -> None:
    ours = {role["metadata"]["name"] for role in bootstrap_roles()}
    with tempfile.TemporaryDirectory() as folder, RealKube(Path(folder)) as real, real.client() as client:
        roles, bindings = (
            client.get(f"{RBAC}/{plural}").json()["items"] for plural in ("clusterroles", "clusterrolebindings")
        )
    found: dict[str, Any] = {"source": SOURCE, "roles": {}, "bindings": {}}
    for role in roles:
        if role["metadata"]["name"] not in ours:
            found["roles"][role["metadata"]["name"]] = role.get("rules") or []
    for binding in bindings:
        if binding["metadata"]["name"] not in ours:
            found["bindings"][binding["metadata"]["name"]] = [binding["roleRef"]["name"], binding.get("subjects") or []]
    json.dump(found, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()

"""An address that a certificate does not name, as a mapped port has it: the kubeconfig says which name to look for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from matrixcommon.model.errors import Unavailable
from services.matrixctl.clients.kubernetes import Cluster
from services.testing.kubernetes import KubernetesApi

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


def named(kubernetes: KubernetesApi, name: str, folder: Path) -> Cluster:
    document = yaml.safe_load(kubernetes.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["tls-server-name"] = name
    (folder / name).write_text(yaml.safe_dump(document))
    return Cluster(folder / name)


def test_the_certificate_is_held_against_the_name_that_the_kubeconfig_gives(
    kubernetes: KubernetesApi, tmp_path: Path
) -> None:
    assert named(kubernetes, "localhost", tmp_path).items("/api/v1/namespaces")
    with pytest.raises(Unavailable, match="certificate"):
        named(kubernetes, "elsewhere", tmp_path).items("/api/v1/namespaces")

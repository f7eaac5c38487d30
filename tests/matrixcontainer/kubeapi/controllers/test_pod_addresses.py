"""Addresses of pods: one pod's at a time, from the moment that it is to have one until it ends or is gone, whether its
status has shown it by then or not."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from matrixcontainer.kubeapi.kubelet.pod_info import PodIndex, PodInfo
from matrixcontainer.kubeapi.storage.objects import Record

ADDRESS, NEXT = "10.244.0.1", "10.244.0.2"


def seen(pods: PodIndex, name: str, uid: str = "", **status: Any) -> PodInfo:
    """What the index knows of a pod that a watch has brought."""
    body = {
        "metadata": {"namespace": "d", "name": name, "uid": uid or name},
        "spec": {"nodeName": "n"},
        "status": status,
    }
    return pods.put(Record(("pods", "d", name), uid or name, 1, orjson.dumps(body)))[1]


def test_address_assignment_lasts_until_the_status_shows_it() -> None:
    pods = PodIndex()
    a = seen(pods, "a")
    assert pods.assign_address(a, ADDRESS) == ADDRESS
    assert pods.assign_address(seen(pods, "b"), ADDRESS) == ""
    a = seen(pods, "a", phase="Pending")
    assert pods.assign_address(a, NEXT) == ADDRESS, "asked again, it is the same"
    assert pods.assign_address(seen(pods, "b"), ADDRESS) == ""
    seen(pods, "a", phase="Running", podIP=ADDRESS)
    assert pods.addresses == {ADDRESS: ("d", "a")}
    pods.delete(("d", "a"))
    assert pods.addresses == {}


@pytest.mark.parametrize("end", ["gone", "failed", "replaced", "shown otherwise"])
def test_address_of_a_deleted_pod_is_reusable(end: str) -> None:
    pods = PodIndex()
    assert pods.assign_address(seen(pods, "a"), ADDRESS) == ADDRESS
    match end:
        case "gone":
            pods.delete(("d", "a"))
        case "failed":
            seen(pods, "a", phase="Failed")
        case "replaced":
            seen(pods, "a", uid="another")
        case _:
            seen(pods, "a", phase="Running", podIP=NEXT)
    assert pods.assign_address(seen(pods, "b"), ADDRESS) == ADDRESS
    assert pods.addresses.get(ADDRESS) == ("d", "b")

"""Sweeps on a Ray cluster: the outcome of here, and a sentence where there is no Ray, no cluster or no such address."""

import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from infer_workload.experiments.ray_cluster import ray_runner
from infer_workload.experiments.sweep import expand_points, local_runner, parse_axis, sweep
from tests.services.matrixctl.inprocess import run_matrixctl


def test_ray_that_is_not_there_is_refused_with_what_installs_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, text = run_matrixctl(
        capsys, "experiment", "sweep", "--generate", "5", "--over", "nodes=8", "--ray", "auto"
    )
    assert code == 1
    assert "cloudmatrix[ray]" in text


@pytest.mark.parametrize("address", ["nonsense://x", "", "host", "host:port", "auto ", "ray://:1", "1.2.3.4:123456"])
def test_an_address_that_is_none_of_a_ray_cluster_is_refused_with_its_form(capsys, monkeypatch, address):
    _ray_that_is_there(monkeypatch)
    code, _, text = run_matrixctl(
        capsys, "experiment", "sweep", "--generate", "5", "--over", "nodes=8", "--ray", address
    )
    assert code == 2
    assert "--ray" in text
    assert "HOST:PORT, ray://HOST:PORT, auto or local" in text


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999"])
def test_a_ray_cluster_that_does_not_answer_is_named_at_once(capsys, monkeypatch, address):
    _ray_that_is_there(monkeypatch)
    code, _, text = run_matrixctl(
        capsys, "experiment", "sweep", "--generate", "5", "--over", "nodes=8", "--ray", address
    )
    assert code == 3
    assert "no Ray cluster answers at" in text


@pytest.mark.parametrize("address", ["auto", "local"])
def test_a_ray_cluster_that_refuses_is_quoted(capsys, monkeypatch, address):
    init = Mock(side_effect=ConnectionError("Failed to connect\nno token"))
    _ray_that_is_there(monkeypatch, init=init)
    code, _, text = run_matrixctl(
        capsys, "experiment", "sweep", "--generate", "5", "--over", "nodes=8", "--ray", address
    )
    assert code == 3
    assert f"the Ray cluster at {address} failed: no token" in text
    assert init.call_args.kwargs["address"] == address, "without one Ray joins a cluster that it remembers"


def _ray_that_is_there(monkeypatch, **calls):
    """As much of Ray as is asked before the first point, whether it is installed here or not."""
    module = SimpleNamespace(shutdown=Mock(), **calls)
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray.exceptions", SimpleNamespace(RayError=type("RayError", (Exception,), {})))


def test_a_ray_cluster_finds_the_same():
    pytest.importorskip(
        "ray", reason="Ray is not installed here (the extra `ray`): sweeps were tried on processes alone"
    )
    points = expand_points({"generate": 20, "nodes": 8}, [parse_axis("seed=1,2,3")])
    assert sweep(points, ray_runner("local")) == sweep(points, local_runner(1))

"""Trials measured by the workers of a Ray cluster, which is there or started here for one sweep."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from infer_workload.experiments.sweep import ReportOrReason, Runner, longest_first, measured
from infer_workload.experiments.trial import Trial
from matrixcommon.model.errors import InvalidField, NotFound, Unavailable

ADDRESS = re.compile(r"local|auto|(?:ray://)?(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
ANSWERS_S = 5.0
"""Seconds within which a cluster takes a connection. Ray itself tries for more than a minute."""


def on_ray(address: str, workers: int | None = None) -> Runner:
    """The workers of a Ray cluster, at `HOST:PORT`, `ray://HOST:PORT`, `auto` or `local`: one of this machine for the
    sweep alone, with so many workers (None: one for each core). Traces are read where the workers are. Raises
    NotFound without Ray, InvalidField of another address; the runner raises Unavailable where no cluster answers."""
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError as absent:
        raise NotFound("Ray is not installed here: pip install 'cloudmatrix[ray]'", field="--ray") from absent
    form = ADDRESS.fullmatch(address)
    if form is None:
        raise InvalidField(f"{address!r} is not HOST:PORT, ray://HOST:PORT, auto or local", field="--ray")

    def run(trials: Sequence[Trial]) -> Iterator[tuple[int, ReportOrReason]]:
        if form["host"]:
            _reach(form["host"].strip("[]"), int(form["port"]))
        where: dict[str, Any] = {"address": address}  # without one Ray joins the cluster it remembers of this machine
        if address == "local":
            where["num_cpus"] = workers
        try:
            ray.init(**where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            task = ray.remote(measured)
            asked = {task.remote(trial): number for number, trial in longest_first(trials)}
            waiting = list(asked)
            while waiting:
                ended, waiting = ray.wait(waiting)
                for one in ended:
                    yield asked[one], ray.get(one)
        except (ConnectionError, RayError) as wrong:
            why = str(wrong).strip().splitlines()[-1]
            raise Unavailable(f"the Ray cluster at {address} does not measure: {why}", field="--ray") from wrong
        finally:
            ray.shutdown()

    return run


def _reach(host: str, port: int) -> None:
    """Raises Unavailable where nothing takes a connection."""
    try:
        socket.create_connection((host, port), ANSWERS_S).close()
    except (OSError, OverflowError) as wrong:
        raise Unavailable(f"no Ray cluster answers at {host}:{port}: {wrong}", field="--ray") from wrong

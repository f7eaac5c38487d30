"""Run trials on the workers of a Ray cluster: a running one, or a local one started for the sweep."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from infer_workload.experiments.sweep import ReportOrReason, Runner, longest_first, run_trial
from infer_workload.experiments.trial import Trial
from matrixcommon.model.errors import InvalidField, NotFound, Unavailable

ADDRESS = re.compile(r"local|auto|(?:ray://)?(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
CONNECT_TIMEOUT_S = 5.0
"""Connection timeout in seconds. Ray itself tries for more than a minute."""


def ray_runner(address: str, workers: int | None = None) -> Runner:
    """A runner on the workers of a Ray cluster at `HOST:PORT`, `ray://HOST:PORT` or `auto`; `local` starts one on this
    host for the sweep, with `workers` workers (None: one per core). Workers read traces from their own file systems.
    Raises NotFound without Ray, InvalidField for another address; the runner raises Unavailable if no cluster
    answers."""
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError as absent:
        raise NotFound("Ray is not installed; run: pip install 'cloudmatrix[ray]'", field="--ray") from absent
    form = ADDRESS.fullmatch(address)
    if form is None:
        raise InvalidField(f"{address!r} must be HOST:PORT, ray://HOST:PORT, auto or local", field="--ray")

    def run(trials: Sequence[Trial]) -> Iterator[tuple[int, ReportOrReason]]:
        if form["host"]:
            _check_reachable(form["host"].strip("[]"), int(form["port"]))
        where: dict[str, Any] = {"address": address}  # without it Ray joins the last cluster started on this host
        if address == "local":
            where["num_cpus"] = workers
        try:
            ray.init(**where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            task = ray.remote(run_trial)
            asked = {task.remote(trial): number for number, trial in longest_first(trials)}
            waiting = list(asked)
            while waiting:
                ended, waiting = ray.wait(waiting)
                for one in ended:
                    yield asked[one], ray.get(one)
        except (ConnectionError, RayError) as wrong:
            why = str(wrong).strip().splitlines()[-1]
            raise Unavailable(f"the Ray cluster at {address} failed: {why}", field="--ray") from wrong
        finally:
            ray.shutdown()

    return run


def _check_reachable(host: str, port: int) -> None:
    """Raise Unavailable if nothing accepts a connection there."""
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as wrong:
        raise Unavailable(f"no Ray cluster answers at {host}:{port}: {wrong}", field="--ray") from wrong

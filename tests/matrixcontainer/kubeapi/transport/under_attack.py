"""One attack on a server, with another client beside it that goes on with its own requests."""

from __future__ import annotations

from tests.e2e.realkube.control_plane import resident_mb
from tests.figures import Figures
from tests.matrixcontainer.kubeapi.transport.attacks import ATTACKS, Attacker
from tests.matrixcontainer.kubeapi.transport.probe_client import ProbeClient


async def under_attack(
    name: str,
    attacker: Attacker,
    client: ProbeClient,
    pid: int,
    resident_mb_max: float,
    figures: Figures,
    answers_min: int = 11,
) -> None:
    """Assert that each request of `client` is answered meanwhile and that the server's process stays small."""
    before = resident_mb(pid)
    try:
        result = await ATTACKS[name](attacker)
        after = resident_mb(pid)
    finally:
        attacker.drop()
        fared = client.leave()
    figures.requests, figures.errors = fared.answers + len(fared.errors), len(fared.errors)
    figures.worst_ms = max(fared.worst_kept_ms, fared.worst_new_ms)
    figures.memory_before_mb, figures.memory_after_mb = before, after
    figures.more = (
        f"on its connection {fared.worst_kept_ms:.0f} ms, on a new one {fared.worst_new_ms:.0f}; the attacker: {result}"
    )
    assert not fared.errors, fared
    assert fared.answers >= answers_min, fared
    assert after < resident_mb_max

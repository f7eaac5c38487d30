"""The log of the operator: what waits or is tried again is no error there, and a line does not carry Kopf's settings."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._cogs.clients.api import request
from kopf._cogs.clients.auth import APIContext
from kopf._cogs.structs.references import Resource
from kopf._core.actions.execution import execute_handler_once
from kopf._core.actions.loggers import ObjectLogger
from kopf._core.actions.progression import HandlerState
from kopf._core.intents.causes import ChangingCause, Reason

from matrixcommon.model.errors import MatrixError, Unavailable
from matrixcontainer.operator.handlers import reconcilers_for, registry_for
from services.chassis.logging import JsonFormatter
from services.operator.kopf_logging import configure_kopf

BODY = {
    "apiVersion": "cloudmatrix.io/v1alpha1",
    "kind": "CloudMatrixInstance",
    "metadata": {"name": "one", "namespace": "default", "uid": "u"},
}


class Lines(logging.Handler):
    """What would stand in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter("operator"))
        self.written: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(json.loads(self.format(record)))


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, found = logging.getLogger("kopf"), Lines()
    level = logger.level
    configure_kopf([found])
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)
    logger.setLevel(level)


async def handled(outcome: float | Exception | None) -> None:
    """Kopf calls the handler of an instance that was created, whose reconciler comes to that."""
    nobody: Any = None
    reconcilers = reconcilers_for(nobody, nobody, nobody, nobody, lambda: 0.0, "")

    async def reconcile(_: str) -> float | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    reconcilers.instances.reconcile = reconcile  # type: ignore[method-assign]
    registry, settings, body = registry_for(reconcilers, None), kopf.OperatorSettings(), kopf.Body(BODY)
    group, version, plural = "cloudmatrix.io", "v1alpha1", "cloudmatrixinstances"
    cause = ChangingCause(
        logger=ObjectLogger(body=body, settings=settings),
        indices={},
        memo=kopf.Memo(),
        resource=Resource(group, version, plural),
        patch=kopf.Patch(),
        body=body,
        initial=False,
        reason=Reason.CREATE,
    )
    handler = next(each for each in registry._changing.get_all_handlers() if each.reason == Reason.CREATE)
    await execute_handler_once(settings, handler, cause, HandlerState.from_scratch(basetime=datetime.now(UTC)))


async def test_waiting_is_not_logged(lines: Lines) -> None:
    await handled(0.5)
    await handled(None)
    assert lines.written == []


REFUSED: list[tuple[MatrixError | ValueError, str]] = [
    (Unavailable("compute does not answer"), "WARNING"),
    (ValueError("nobody thought of that"), "ERROR"),
]


@pytest.mark.parametrize(("raised", "level"), REFUSED)
async def test_what_was_raised_is_logged_without_kopfs_settings(
    lines: Lines, raised: MatrixError | ValueError, level: str
) -> None:
    await handled(raised)
    (line,) = lines.written
    assert (line["level"], line["k8s_ref"]["name"]) == (level, "one")
    assert str(raised) in line["event"]
    assert line.keys().isdisjoint({"settings", "k8s_skip"})


async def test_a_request_that_is_sent_again_is_a_warning_and_the_last_one_an_error(lines: Lines) -> None:
    nobody = APIContext(kopf.ConnectionInfo(server="http://127.0.0.1:1"))
    logger, settings = logging.getLogger("kopf._cogs.clients.watching"), kopf.OperatorSettings()
    with pytest.raises(aiohttp.ClientConnectionError):
        await request("get", "/apis", settings=settings, backoffs=[0.0], context=nobody, logger=logger)
    await nobody.close()
    assert [line["level"] for line in lines.written] == ["WARNING", "ERROR"]


def test_lines_of_others_are_left_as_they_are(lines: Lines) -> None:
    other = logging.getLogger("kopfs.neighbour")
    other.addHandler(lines)
    other.error("request failed; will retry: never", extra={"settings": "mine"})
    other.removeHandler(lines)
    assert [(line["level"], line["settings"]) for line in lines.written] == [("ERROR", "mine")]

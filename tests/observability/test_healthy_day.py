"""No alert in an emulated day on which nothing fails: a stack in use is scraped, and promtool runs the rules on that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.clocks import virtual_loop
from tests.observability.record import Story, document, nothing, play, small
from tests.observability.test_alerts import RULES, promtool, run

__all__ = ["promtool"]

HOURS = float(os.environ.get("HEALTHY_HOURS", "24"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_fires_in_a_day_on_which_nothing_fails(promtool: str, tmp_path: Path) -> None:
    story = Story("a day on which nothing fails", small, nothing, (), watched_s=HOURS * 3600, interval_s=60)
    loop = virtual_loop()
    try:
        text = document(story, *loop.run_until_complete(play(story)))
    finally:
        loop.close()
    file = tmp_path / "day.yaml"
    file.write_text(text.replace("../../../docs/reference/alerts.rules.yaml", str(RULES)))
    run(promtool, "test", "rules", str(file))

"""Records what Prometheus would have scraped while something failed, as promtool's `input_series`.

Each story runs the whole stack in virtual time, is scraped every half minute, and says which alerts have to fire, by
when, and that no other does. What it prints is kept in `recorded/`; the test runs promtool on that and needs no stack.

    python -m tests.observability.record               # all of them, some minutes
    python -m tests.observability.record node-lost
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from matrixcompute.store.store import OperationRow
from services.observability.alerts import ALERTS
from services.process_faults.database_faults import refuse_writes
from tests.clocks import virtual_loop
from tests.stack import Stack
from tests.stories.repairs.serving import LOAD

RECORDED = Path(__file__).parent / "recorded"
INTERVAL_S = 30
READ = {name for alert in ALERTS for name in alert.metrics()}
"""The metrics that alerts read; nothing else is kept."""


@dataclass(frozen=True)
class Fires:
    """An alert has to be silent at `not_before_s` and to fire at `by_s`, seconds after the failure."""

    alert: str
    not_before_s: float
    by_s: float


@dataclass(frozen=True)
class Story:
    """`before` prepares, `fails` is the failure; it is watched for `watched_s` after that."""

    says: str
    before: Callable[[Stack], Awaitable[None]]
    fails: Callable[[Stack], Awaitable[None]]
    fires: tuple[Fires, ...]
    watched_s: float = 1200
    interval_s: int = INTERVAL_S


async def nothing(_: Stack) -> None:
    return


async def small(stack: Stack) -> None:
    await stack.apply("one", 4)
    await stack.active("one", 4)


async def full(stack: Stack) -> None:
    await stack.apply("one", 48)
    await stack.active("one", 48)


async def serving(stack: Stack) -> None:
    await small(stack)
    for part, body in (("", {"instance": "one"}), ("/load", LOAD)):
        (await stack.http["infer"].put(f"/v1/deployments/one{part}", json=body)).raise_for_status()


async def a_member_loses_power(stack: Stack) -> None:
    view = await stack.compute.find_instance("one")
    assert view is not None
    stack.impair("dead", "node-down", view.members[0].node)


async def a_port_goes_down(stack: Stack) -> None:
    stack.impair("dark", "link-down", "sn0-c11-n3", port="ub-p3-k11")


async def too_large(stack: Stack) -> None:
    await stack.apply("two", 46)


async def resource_is_gone(stack: Stack) -> None:
    await stack.kill("resource")


async def too_much_load(stack: Stack) -> None:
    load = LOAD | {"requestsPerSecond": 80.0}
    (await stack.http["infer"].put("/v1/deployments/one/load", json=load)).raise_for_status()


async def leftover_of_another_release(stack: Stack) -> None:
    """An operation that this release of MatrixCompute cannot resume, as a newer one leaves it that is taken back."""
    await stack.apply("two", 4)
    await stack.until(lambda: _provisioning(stack, "two"), "two is on its way", within_s=600)
    await stack.kill("compute")
    database = stack.slots["compute"].database
    assert database is not None
    with database.sessions.begin() as session:
        for row in session.query(OperationRow).filter_by(target="two"):
            row.verb = "of-another-release"
    await stack.start("compute")


async def _provisioning(stack: Stack, instance: str) -> bool:
    view = await stack.compute.find_instance(instance)
    return view is not None and view.state == "Provisioning"


async def resource_cannot_write(stack: Stack) -> None:
    refuse_writes(stack.folder / "resource.db")


async def compute_starts_on_a_database_that_takes_no_writes(stack: Stack) -> None:
    await stack.kill("compute")
    refuse_writes(stack.folder / "compute.db")
    await stack.start("compute")


STORIES = {
    "healthy": Story("two hours on which nothing fails", small, nothing, (), watched_s=7200, interval_s=60),
    "node-lost": Story(
        "a member's node loses power; another takes its place, the agent stays away",
        small, a_member_loses_power, (Fires("CloudMatrixAgentsLost", 90, 300),),
    ),
    "no-node-left": Story(
        "the same with every node held: the instance stays short of a member",
        full, a_member_loses_power, (Fires("CloudMatrixAgentsLost", 90, 300), Fires("CloudMatrixInstanceDegraded", 240, 480)),
    ),
    "port-down": Story(
        "a UB port goes dark", small, a_port_goes_down, (Fires("CloudMatrixLinksBelowRate", 240, 420),),
    ),
    "no-room": Story(
        "46 nodes are asked for where 44 are free", small, too_large, (Fires("CloudMatrixInstancePending", 840, 1020),),
    ),
    "process-gone": Story(
        "MatrixResource ends and nobody starts it again; MatrixLink cannot follow the topology",
        small, resource_is_gone,
        (Fires("CloudMatrixProcessDown", 60, 240), Fires("CloudMatrixWatcherFails", 0, 300)),
    ),
    "stuck": Story(
        "an operation was left by a release that was taken back, and this one cannot resume it", small,
        leftover_of_another_release, (Fires("CloudMatrixInstanceStuck", 30, 240),),
    ),
    "database-full": Story(
        "MatrixResource's database takes no more writes", small, resource_cannot_write,
        (Fires("CloudMatrixErrors", 240, 600),),
    ),
    "no-leader": Story(
        "MatrixCompute starts on a database that takes no writes, and cannot take the lead", small,
        compute_starts_on_a_database_that_takes_no_writes, (Fires("CloudMatrixNobodyLeads", 60, 240),),
    ),
    "overload": Story(
        "a model is asked for more than its nodes can do", serving, too_much_load,
        (Fires("CloudMatrixFirstTokenLate", 540, 1020),), watched_s=1500,
    ),
}  # fmt: skip


async def scrape(stack: Stack, series: dict[str, dict[int, float]], at: int) -> None:
    for process in stack.services:
        where = f'instance="{process}",job="cloudmatrix",pod="{process}-0",service="{process}"'
        try:
            answer = await stack.http[process].get("/metrics")
        except httpx.TransportError:
            series[f"up{{{where}}}"][at] = 0
            continue
        series[f"up{{{where}}}"][at] = 1
        for family in text_string_to_metric_families(answer.text):
            if not READ & {family.name, f"{family.name}_total"}:
                continue
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                series[f"{sample.name}{{{','.join(filter(None, (labels, where)))}}}"][at] = sample.value


async def play(story: Story) -> tuple[dict[str, dict[int, float]], int, int]:
    """The series, how many scrapes there are, and at which of them it failed."""
    series: dict[str, dict[int, float]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        async with Stack(Path(folder), infer=True) as stack:
            await story.before(stack)
            at = 0
            for at in range(5 * 60 // story.interval_s):
                await scrape(stack, series, at)
                await asyncio.sleep(story.interval_s)
            failed_at = at + 1
            await story.fails(stack)
            for at in range(failed_at, failed_at + int(story.watched_s / story.interval_s) + 1):
                await scrape(stack, series, at)
                await asyncio.sleep(story.interval_s)
    return series, at + 1, failed_at


def values(points: dict[int, float], count: int) -> str:
    """In promtool's notation: runs as `a+0xN`, what was not there as `_`."""
    parts = []
    for value, run in groupby(points.get(at) for at in range(count)):
        length = len(list(run))
        shown = "_" if value is None else f"{value:g}" if value == float(f"{value:g}") else repr(value)
        parts.append(" ".join([shown] * length) if length < 3 or value is None else f"{shown}+0x{length - 1}")
    return " ".join(parts)


def document(story: Story, series: dict[str, dict[int, float]], count: int, failed_at: int) -> str:
    """A file for `promtool test rules`."""
    failed_s = failed_at * story.interval_s
    expected: dict[float, set[str]] = defaultdict(set)
    moments = {0.0, failed_s, *(failed_s + each for fires in story.fires for each in (fires.not_before_s, fires.by_s))}
    moments |= {(count - 1) * story.interval_s} if not story.fires else set()
    if not story.fires:
        moments |= set(range(0, (count - 1) * story.interval_s, 600))
    for moment in moments:
        expected[moment] = {fires.alert for fires in story.fires if failed_s + fires.by_s <= moment}
        early = {fires.alert for fires in story.fires if failed_s + fires.not_before_s < moment < failed_s + fires.by_s}
        if early:
            del expected[moment]
    tests = [
        {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{int(moment)}s",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
        }
        for moment, names in sorted(expected.items())
    ]
    body = {
        "rule_files": ["../../../docs/reference/alerts.rules.yaml"],
        "evaluation_interval": f"{story.interval_s}s",
        "tests": [
            {
                "interval": f"{story.interval_s}s",
                "input_series": [
                    {"series": name, "values": values(points, count)} for name, points in sorted(series.items())
                ],
                "promql_expr_test": tests,
            }
        ],
    }
    head = f"# Recorded by `python -m tests.observability.record`: {story.says}.\n"
    return head + yaml.safe_dump(body, sort_keys=False, width=1_000_000)


def record(name: str) -> None:
    story = STORIES[name]
    loop = virtual_loop()
    try:
        text = document(story, *loop.run_until_complete(play(story)))
    finally:
        loop.close()
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.yaml").write_text(text)
    print(f"{name}: {len(text) // 1000} kB")


if __name__ == "__main__":
    for each in sys.argv[1:] or STORIES:
        record(each)

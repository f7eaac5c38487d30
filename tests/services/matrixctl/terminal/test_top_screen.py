"""`matrixctl top`: what it draws, on a full screen and once; which keys do what; and that it draws only what changed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len
from textual.worker import WorkerCancelled

from matrixcommon.model.errors import NotFound, Unavailable
from services.matrixctl.top import drawing
from services.matrixctl.top.live_table import LiveTable
from services.matrixctl.top.screen import Map, TopApp
from services.matrixctl.top.snapshot import (
    Cell,
    Event,
    Instance,
    Link,
    Mark,
    Node,
    Snapshot,
    assign_letters,
    node_mark,
    node_of,
)

FREE = (Cell(Mark.FREE),) * 8


def machine() -> Snapshot:
    """Three cabinets of four nodes: an instance on four nodes with a faulty NPU and a spare, one node lost."""
    whole = (Cell(Mark.ALLOCATED, "deepseek"),) * 8
    nodes = {
        "sn0-c00-n0": whole,
        "sn0-c00-n1": (*whole[:5], Cell(Mark.FAULTY, "deepseek"), *whole[:2]),
        "sn0-c00-n2": whole,
        "sn0-c00-n3": whole,
        "sn0-c01-n0": (Cell(Mark.SPARE, "deepseek"),) * 8,
        "sn0-c01-n1": (Cell(Mark.LOST),) * 8,
        "sn0-c01-n2": (Cell(Mark.ALLOCATED, "small"),) * 2 + FREE[:6],
        "sn0-c01-n3": (Cell(Mark.CHANGING),) * 8,
        "sn0-c02-n0": (Cell(Mark.CLOSED),) * 8,
    }
    names = [f"sn0-c0{cabinet}-n{node}" for cabinet in range(3) for node in range(4)]
    return Snapshot(
        nodes=tuple(Node(name, "sn0", name[:7], "Active", nodes.get(name, FREE)) for name in names),
        instances=(
            Instance("deepseek", "Repairing", 4, 3, 1, "NodeLost sn0-c00-n1 is being replaced"),
            Instance("small", "Active", 1, 1, 0),
        ),
        events=(
            Event("2026-11-24T06:01:09.001Z", "Warning", "deepseek", "NodeLost", "sn0-c00-n1 is lost"),
            Event("2026-11-24T05:59:00.000Z", "Normal", "deepseek", "Active", "generation 1: 4 nodes are active"),
        ),
        links=(Link("sn0-c00-n0-u0p3", "ub", 151.25, 196.0, 0.77), Link("sn0-c00-n2/vpc", "vpc", 3.0, 50.0, 0.06)),
        largest_cabinet=3,
        largest_supernode=3,
        faults=1,
        scale=60.0,
        emulated_time="2026-11-24T06:01:11.500Z",
        letters={"deepseek": "A", "small": "B"},
    )


class FakeSource:
    """A source whose snapshot the test sets."""

    def __init__(self) -> None:
        self.snapshot = machine()
        self.refusal: Exception | None = None

    def read(self) -> Snapshot:
        if self.refusal:
            raise self.refusal
        return self.snapshot

    def list_kind(self, word: str) -> tuple[str, list[str], drawing.Rows]:
        if word != "no":
            raise NotFound(f"there is no {word!r}")
        return "nodes", ["name", "state"], [(node.name, (node.name, node.state)) for node in self.snapshot.nodes]

    def describe(self, word: str, name: str) -> str:
        return f"kind: {word}\nname: {name}\n"


def shown(app: TopApp) -> str:
    """The screen as text."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips()) + "\n"


async def settled(app: TopApp, pilot: object) -> None:
    while True:
        try:
            await app.workers.wait_for_complete()
            break
        except WorkerCancelled:  # by the next look, which began before that one had ended
            continue
    await pilot.pause()  # type: ignore[attr-defined]
    await pilot.pause()  # type: ignore[attr-defined]


FULL = """\
3/12 nodes free  NPUs 30 free, 33 held of 96  faulty 9  largest block 3/3  2026-11-24 06:01:11 x60
· free  + spare  ~ changing  - closed  × faulty  ! lost  A held by A
c00  AAAAAAAA AAAAA×AA AAAAAAAA AAAAAAAA    busiest links
c01  ++++++++ !!!!!!!! BB······ ~~~~~~~~     LINK             PLANE  GB/S   OF   USED
c02  -------- ········ ········ ········     sn0-c00-n0-u0p3  ub     151.2  196  77%
                                             sn0-c00-n2/vpc   vpc    3.0    50   6%
"""
COMPACT = """\
3/12 nodes free  faulty 9  2026-11-24 06:01:11 x60
c00 A×AA  c01 +!B~  c02 -···



instances
    INSTANCE  STATE      READY  SPARES  WHY
 A  deepseek  Repairing  3/4    1       NodeLost sn0-c0
 B  small     Active     1/1    0       -
"""
ONCE = """\
3/12 nodes free  faulty 9  largest block 3/3  2026-11-24 06:01:11 x60

. free  + spare  ~ changing  - closed  x faulty  ! lost  A held by A
c00  AAAAAAAA AAAAAxAA AAAAAAAA AAAAAAAA
c01  ++++++++ !!!!!!!! BB...... ~~~~~~~~
c02  -------- ........ ........ ........

instances
   INSTANCE  STATE      READY  SPARES  WHY
A  deepseek  Repairing  3/4    1       NodeLost sn0-c00-n1 is being replaced
B  small     Active     1/1    0       -

busiest links
LINK             PLANE  GB/S   OF   USED
sn0-c00-n0-u0p3  ub     151.2  196  77%
sn0-c00-n2/vpc   vpc    3.0    50   6%

events, the newest first
AT        ABOUT     REASON    MESSAGE
06:01:09  deepseek  NodeLost  sn0-c00-n1 is lost
05:59:00  deepseek  Active    generation 1: 4 nodes are active
"""


async def test_a_large_terminal_shows_every_npu_and_the_links() -> None:
    app = TopApp(FakeSource())
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        assert shown(app).startswith(FULL)
        assert "06:01:09  deepseek  NodeLost  sn0-c00-n1 is lost" in shown(app)


async def test_a_small_terminal_shows_the_worst_of_each_node_and_follows_its_size() -> None:
    app = TopApp(FakeSource())
    async with app.run_test(size=(55, 20)) as pilot:
        await settled(app, pilot)
        assert shown(app).startswith(COMPACT)
        await pilot.resize_terminal(100, 30)
        await settled(app, pilot)
        assert shown(app).startswith(FULL)


def test_printed_once_in_ascii_it_is_pure_ascii_and_says_the_same() -> None:
    text = "\n".join(line.plain for line in drawing.render_once(machine(), 80, ascii=True)) + "\n"
    assert text == ONCE
    assert text.isascii()
    assert all(cell_len(line) <= 40 for line in map(str, drawing.render_once(machine(), 40, ascii=True)))


async def test_the_screen_itself_is_ascii_where_it_must_be() -> None:
    app = TopApp(FakeSource(), ascii=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        assert shown(app).isascii()


async def test_only_what_changed_is_drawn_again() -> None:
    given = FakeSource()
    app = TopApp(given)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        map, instances = app.query_one(Map), app.query_one("#instances", LiveTable)
        lines, cells = map.drawn, instances.updates
        await pilot.press("r")
        await settled(app, pilot)
        assert (map.drawn, instances.updates) == (lines, cells)
        nodes = given.snapshot.nodes
        given.snapshot = replace(
            given.snapshot,
            nodes=(replace(nodes[0], cells=FREE), *nodes[1:]),
            instances=(replace(given.snapshot.instances[0], ready=4), given.snapshot.instances[1]),
        )
        await pilot.press("r")
        await settled(app, pilot)
        assert (map.drawn, instances.updates) == (lines + 1, cells + 1)
        assert "c00  ········ AAAAA×AA" in shown(app)


async def test_a_newer_event_comes_first_and_the_cursor_stays_on_its_row() -> None:
    given = FakeSource()
    app = TopApp(given)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        events = app.query_one("#events", LiveTable)
        events.move_cursor(row=1)
        chosen = events.selected_key()
        newest = Event("2026-11-24T06:02:00.000Z", "Normal", "small", "Resized", "1 node")
        given.snapshot = replace(given.snapshot, events=(newest, *given.snapshot.events))
        await pilot.press("r")
        await settled(app, pilot)
        assert app.snapshot.events[0] is newest
        assert events.row_count == 3
        assert events.selected_key() == chosen


async def test_keys_ask_filter_go_to_a_kind_describe_and_come_back() -> None:
    app = TopApp(FakeSource())
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("question_mark")
        await settled(app, pilot)
        assert "go to a kind" in shown(app)
        await pilot.press("escape", "slash", *"small")
        await settled(app, pilot)
        assert "deepseek" not in shown(app)
        assert " B  small" in shown(app)
        await pilot.press("enter", "escape")
        await settled(app, pilot)
        assert " A  deepseek" in shown(app)
        await pilot.press("d")
        await settled(app, pilot)
        assert shown(app).startswith("instances small\nkind: instances\nname: small\n")
        await pilot.press("escape", "colon", *"no", "enter")
        await settled(app, pilot)
        assert shown(app).startswith("nodes (12)\n NAME        STATE\n sn0-c00-n0  Active\n")
        await pilot.press("slash", *"c02", "enter", "d")
        await settled(app, pilot)
        assert shown(app).startswith("no sn0-c02-n0\n")
        await pilot.press("escape", "escape", "escape")
        await settled(app, pilot)
        assert shown(app).startswith(FULL)


async def test_a_kind_that_is_none_is_said_and_changes_nothing() -> None:
    app = TopApp(FakeSource())
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await settled(app, pilot)
        await pilot.press("colon", *"pods", "enter")
        await settled(app, pilot)
        assert "there is no 'pods'" in shown(app)
        assert len(app.screen_stack) == 1


async def test_a_stack_that_does_not_answer_is_said_in_the_header_and_what_was_read_stays() -> None:
    given = FakeSource()
    app = TopApp(given)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        given.refusal = Unavailable("resource does not answer")
        await pilot.press("r")
        await settled(app, pilot)
        assert shown(app).startswith("Unavailable: resource does not answer\n")
        assert "c01  ++++++++ !!!!!!!! BB······" in shown(app)


async def test_light_and_dark_are_chosen_by_the_terminal_and_by_a_key() -> None:
    assert drawing.is_light({"COLORFGBG": "0;15"})
    assert not drawing.is_light({"COLORFGBG": "15;0"})
    assert not drawing.is_light({})
    app = TopApp(FakeSource(), light=True)
    async with app.run_test(size=(100, 30)) as pilot:
        assert app.theme == "textual-light"
        await pilot.press("t")
        assert app.theme == "textual-dark"


@pytest.mark.parametrize(
    ("environ", "encoding", "expected"),
    [
        ({"TERM": "xterm-256color"}, "UTF-8", False),
        ({"TERM": "xterm-256color"}, "ANSI_X3.4-1968", True),
        ({"TERM": "linux"}, "UTF-8", True),
        ({"TERM": "vt100"}, "utf8", True),
    ],
)
def test_ascii_is_for_terminals_that_cannot_show_more(environ: dict[str, str], encoding: str, expected: bool) -> None:
    assert drawing.ascii_only(environ, encoding) is expected


def test_a_letter_stays_with_its_holder_and_is_given_again_when_that_is_gone() -> None:
    first = assign_letters({"a", "b"}, {})
    assert first == {"a": "A", "b": "B"}
    assert assign_letters({"b", "c"}, first) == {"b": "B", "c": "A"}
    many = assign_letters({f"i{number:03}" for number in range(60)}, {})
    assert list(many.values()).count("*") == 60 - len(set(many.values())) + 1


VIEW = {
    "name": "sn0-c00-n0",
    "supernode": "sn0",
    "cabinet": "sn0-c00",
    "state": "Available",
    "agent": "Connected",
    "power": "On",
    "npus": 8,
    "cordonedBy": [],
}


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ({}, Mark.FREE),
        ({"allocation": "a", "role": "member"}, Mark.ALLOCATED),
        ({"allocation": "a", "role": "spare"}, Mark.SPARE),
        ({"agent": "Lost", "allocation": "a"}, Mark.LOST),
        ({"power": "Off"}, Mark.LOST),
        ({"state": "Cleaning"}, Mark.CHANGING),
        ({"state": "Quarantined"}, Mark.CLOSED),
        ({"cordonedBy": ["ops"]}, Mark.CLOSED),
    ],
)
def test_a_node_has_the_mark_of_its_state(change: dict[str, object], mark: Mark) -> None:
    assert node_mark(VIEW | change) is mark


def test_a_node_shared_by_two_shows_each_npu_with_its_own_holder() -> None:
    npus = [
        {"name": f"sn0-c00-n0-npu{number}", "health": "Healthy", "faults": [], "allocation": holder}
        for number, holder in enumerate(["a", "a", "b", "", "", "", "", ""])
    ]
    npus[7]["health"] = "Failed"
    node = node_of(VIEW | {"allocation": "a", "role": "member", "state": "Active"}, npus)
    assert [cell.holder for cell in node.cells] == ["a", "a", "b", "", "", "", "", ""]
    assert [cell.mark for cell in node.cells[2:5]] == [Mark.ALLOCATED, Mark.FREE, Mark.FREE]
    assert node.cells[7].mark is Mark.FAULTY


def test_textual_is_imported_only_when_the_screen_opens() -> None:
    code = "import sys, services.matrixctl.main; from services.matrixctl.top import drawing, source; print('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"

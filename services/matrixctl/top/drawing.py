"""A snapshot as text: the header, the map of NPUs, and tables; for the full screen and for printing once.

The map has a line for each cabinet (full), or a mark for each node (compact). An NPU that is held shows its holder's
letter; every other state has a mark of its own, so that nothing depends on colour. Marks are ASCII where the terminal
can show no more.
"""

from __future__ import annotations

import locale
import os
from collections.abc import Iterable, Mapping
from itertools import groupby

from rich.text import Text

from services.matrixctl.top.snapshot import Cell, Mark, Node, Snapshot

MARKS = {
    Mark.FREE: "·",
    Mark.SPARE: "+",
    Mark.CHANGING: "~",
    Mark.CLOSED: "-",
    Mark.FAULTY: "×",
    Mark.LOST: "!",
}
ASCII = MARKS | {Mark.FREE: ".", Mark.FAULTY: "x"}
STYLES = {
    Mark.FREE: "dim",
    Mark.SPARE: "cyan",
    Mark.CHANGING: "yellow",
    Mark.CLOSED: "magenta",
    Mark.FAULTY: "bold red",
    Mark.LOST: "bold white on red",
}
HOLDERS = ("green", "blue", "bright_cyan", "bright_magenta", "bright_green", "bright_blue", "bright_yellow")
FULL_COLUMNS = 100
FULL_LINES = 28
"""Minimum terminal size for the map NPU by NPU with four panes; smaller ones get the compact form."""
_WORST = (Mark.LOST, Mark.FAULTY, Mark.CLOSED, Mark.CHANGING, Mark.ALLOCATED, Mark.SPARE, Mark.FREE)


def ascii_only(environ: Mapping[str, str] = os.environ, encoding: str | None = None) -> bool:
    """Whether to use only ASCII: the encoding is not UTF-8, or the terminal is a Linux console or unknown."""
    name = (encoding or locale.getpreferredencoding(False)).lower().replace("-", "").replace("_", "")
    return name != "utf8" or environ.get("TERM", "") in ("linux", "dumb", "vt100", "vt220")


def is_light(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal declares a light background (COLORFGBG, set by rxvt, Konsole and iTerm2)."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return background in ("7", "15")


def header(snapshot: Snapshot, columns: int) -> Text:
    """The header in one line; less important parts are dropped if there is no room."""
    total = sum(len(node.cells) for node in snapshot.nodes)
    speed = "paused" if snapshot.scale == 0 else f"x{snapshot.scale:g}"
    broken = snapshot.count(Mark.FAULTY) + snapshot.count(Mark.LOST)
    alarm = "bold red"
    # From left to right, each with its rank: the highest falls away first.
    parts = [
        (f"no answer from {', '.join(snapshot.unreachable)}" if snapshot.unreachable else "", alarm, 0),
        (f"{snapshot.nodes_free}/{len(snapshot.nodes)} nodes free", "bold", 1),
        (f"NPUs {snapshot.count(Mark.FREE)} free, {snapshot.count(Mark.ALLOCATED)} held of {total}", "", 5),
        (f"faulty {broken}", alarm if broken else "", 2),
        (f"faults {snapshot.faults}" if snapshot.faults else "", alarm, 6),
        (f"largest block {snapshot.largest_cabinet}/{snapshot.largest_supernode}", "", 4),
        (f"{snapshot.emulated_time[:19].replace('T', ' ')} {speed}", "", 3),
    ]
    shown = [part for part in parts if part[0]]
    while len(shown) > 1 and sum(len(text) + 2 for text, _, _ in shown) - 2 > columns:
        shown.remove(max(shown, key=lambda part: part[2]))
    line = Text("  ").join(Text(text, style=style) for text, style, _ in shown)
    line.truncate(columns)
    return line


def legend(ascii: bool) -> Text:
    marks = ASCII if ascii else MARKS
    line = Text()
    for mark, shown in marks.items():
        line.append(shown, STYLES[mark]).append(f" {mark.value}  ", "dim")
    return line.append("A", HOLDERS[0]).append(" held by A", "dim")


def map_lines(snapshot: Snapshot, compact: bool, ascii: bool) -> list[Text]:
    """A line for each cabinet; with several supernodes, a line that names each above its cabinets."""
    lines: list[Text] = []
    several = len({node.supernode for node in snapshot.nodes}) > 1
    for supernode, of_supernode in groupby(snapshot.nodes, key=lambda node: node.supernode):
        cabinets = [(name, list(nodes)) for name, nodes in groupby(of_supernode, key=lambda node: node.cabinet)]
        if several:
            lines.append(Text(supernode, style="bold"))
        if compact:
            lines += _compact(cabinets, snapshot.letters, ascii)
        else:
            lines += [_full(name, nodes, snapshot.letters, ascii) for name, nodes in cabinets]
    return lines


def _full(cabinet: str, nodes: Iterable[Node], letters: dict[str, str], ascii: bool) -> Text:
    line = Text(f"{short(cabinet):<5}")
    for node in nodes:
        for cell in node.cells:
            _draw(line, cell, letters, ascii)
        line.append(" ")
    line.rstrip()
    return line


def _compact(cabinets: list[tuple[str, list[Node]]], letters: dict[str, str], ascii: bool) -> list[Text]:
    """The compact map: four cabinets per line, one mark per node, that of its worst NPU."""
    lines = []
    for at in range(0, len(cabinets), 4):
        line = Text()
        for name, nodes in cabinets[at : at + 4]:
            line.append(f"{short(name):<4}")
            for node in nodes:
                _draw(line, min(node.cells, key=lambda cell: _WORST.index(cell.mark)), letters, ascii)
            line.append("  ")
        line.rstrip()
        lines.append(line)
    return lines


def _draw(line: Text, cell: Cell, letters: dict[str, str], ascii: bool) -> None:
    if cell.mark is Mark.ALLOCATED:
        letter = letters.get(cell.holder, "*")
        line.append(letter, holder_style(letter))
    else:
        line.append((ASCII if ascii else MARKS)[cell.mark], STYLES[cell.mark])


def holder_style(letter: str) -> str:
    return HOLDERS[ord(letter) % len(HOLDERS)]


def short(name: str) -> str:
    """The last part of a name: c03 of sn0-c03."""
    return name.rpartition("-")[2]


INSTANCES = ("", "instance", "state", "ready", "spares", "why")
EVENTS = ("at", "about", "reason", "message")
LINKS = ("link", "plane", "GB/s", "of", "used")
Rows = list[tuple[str, tuple[str, ...]]]
"""Keys and cells."""


def instance_rows(snapshot: Snapshot) -> Rows:
    return [
        (
            each.name,
            (
                snapshot.letters.get(each.name, ""),
                each.name,
                each.state,
                f"{each.ready}/{each.nodes}",
                str(each.spares),
                each.why or "-",
            ),
        )
        for each in snapshot.instances
    ]


def event_rows(snapshot: Snapshot) -> Rows:
    """Event rows, newest first, without duplicates of one moment."""
    return list(
        {
            f"{each.at}/{each.about}/{each.reason}/{each.message}": (
                each.at[11:19],
                each.about,
                each.reason,
                each.message,
            )
            for each in snapshot.events
        }.items()
    )


def link_rows(snapshot: Snapshot) -> Rows:
    return [
        (
            each.name,
            (
                each.name,
                each.plane,
                f"{each.sent_gbps:,.1f}",
                f"{each.capacity_gbps:,.0f}",
                "-" if each.utilisation is None else f"{each.utilisation:.0%}",
            ),
        )
        for each in snapshot.links
    ]


def render_once(snapshot: Snapshot, columns: int, ascii: bool) -> list[Text]:
    """Everything, in order, for printing without a screen."""
    lines = [header(snapshot, columns), Text(), legend(ascii), *map_lines(snapshot, columns < 45, ascii)]
    for title, columns_of, rows in (
        ("instances", INSTANCES, instance_rows(snapshot)),
        ("busiest links", LINKS, link_rows(snapshot)[:8]),
        ("events, the newest first", EVENTS, event_rows(snapshot)[:8]),
    ):
        lines += [Text(), Text(title, style="bold"), *_table(columns_of, [cells for _, cells in rows])]
    for line in lines:
        line.truncate(columns)
    return lines


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[Text]:
    if not rows:
        return [Text("  none", style="dim")]
    every = [tuple(title.upper() for title in titles), *rows]
    widths = [max(len(row[at]) for row in every) for at in range(len(titles))]
    lines = []
    for number, row in enumerate(every):
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        lines.append(Text(text, style="dim" if number == 0 else ""))
    return lines

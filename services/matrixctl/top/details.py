"""Screens on top of the first: the resources of a kind, one resource in full, and the help."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Input, Static

from services.matrixctl.top.drawing import Rows
from services.matrixctl.top.live_table import LiveTable

Reload = tuple[Callable[["KindScreen"], object], float]
"""The function that reads a kind's rows, and how often to call it (wall seconds)."""

KEYS = """\
[b]matrixctl top[/b]: the machine, read-only

  ?        this help                  esc      clear the filter, then go back
  /        show only lines with ...    :        go to a kind: nodes, links, operations ...
  d        describe the selected row   tab      next table
  arrows   select, scroll              r        refresh now (every 2 s by itself)
  t        light or dark               q        quit

A letter in the map is the holder of that NPU; its name stands beside the letter under "instances".
Marks: free, spare (+), changing (~), cordoned or quarantined (-), faulty (x), lost (!).
Commands that print the same tables: matrixctl get KIND, matrixctl describe KIND NAME, matrixctl top --once.
"""


class HelpScreen(Screen[None]):
    """The keys."""

    def compose(self) -> ComposeResult:
        yield Static(KEYS)


class DetailsScreen(Screen[None]):
    """One resource in full."""

    CSS = "DetailsScreen .title { height: 1; text-style: bold; background: $primary; color: $text; }"

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        yield Static(self._title, classes="title", markup=False)
        with VerticalScroll():
            yield Static(self._text, markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class KindScreen(Screen[None]):
    """All resources of a kind, as `get` lists them."""

    CSS = """
    KindScreen .title { height: 1; text-style: bold; background: $primary; color: $text; }
    KindScreen #prompt { height: 1; border: none; padding: 0; display: none; }
    KindScreen #prompt.asked { display: block; }
    """

    def __init__(self, word: str, name: str, titles: list[str], rows: Rows, ascii: bool, reload: Reload) -> None:
        super().__init__(classes="ascii" if ascii else None)
        self.word = word
        self.filter_text = ""
        self._reload, self._refresh_wall_s = partial(reload[0], self), reload[1]
        self._name, self._titles, self._rows = name, titles, rows

    def compose(self) -> ComposeResult:
        yield Static("", classes="title", id="title", markup=False)
        yield LiveTable(self._titles, id="kind")
        yield Input(id="prompt")

    def on_mount(self) -> None:
        self.query_one(LiveTable).focus()
        self.call_after_refresh(self._show)
        self.set_interval(self._refresh_wall_s, self._reload)

    def filter(self, text: str) -> None:
        self.filter_text = text
        self._show()

    def set_rows(self, rows: Rows) -> None:
        self._rows = rows
        self._show()

    def _show(self) -> None:
        self.query_one(LiveTable).show(self._rows, self.filter_text)
        shown = f" with {self.filter_text!r}" if self.filter_text else ""
        self.query_one("#title", Static).update(f"{self._name} ({len(self._rows)}){shown}")

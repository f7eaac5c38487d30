"""The full screen: one header line, the map, and tables of instances, links and events; keys as k9s has them.

It is read-only. Every two seconds a thread reads a snapshot; only changed lines of the map and cells of tables are
redrawn. The size of the terminal chooses the form (full or compact), again whenever it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from rich.segment import Segment
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from matrixcommon.model.errors import MatrixError
from services.matrixctl.top import drawing
from services.matrixctl.top.details import DetailsScreen, HelpScreen, KindScreen
from services.matrixctl.top.live_table import LiveTable
from services.matrixctl.top.snapshot import Snapshot

REFRESH_WALL_S = 2.0


class Source(Protocol):
    """The source of what the screen shows; every method raises MatrixError."""

    def read(self) -> Snapshot: ...

    def list_kind(self, word: str) -> tuple[str, list[str], drawing.Rows]:
        """A kind's plural name, titles and rows, by any of its names."""

    def describe(self, word: str, name: str) -> str: ...


class Map(ScrollView):
    """The NPU map, a line for each cabinet; only changed lines are redrawn."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Text] = []
        self.drawn = 0
        """Number of lines redrawn so far."""

    def show(self, lines: list[Text]) -> None:
        before, self._lines = self._lines, lines
        width = max((line.cell_len for line in lines), default=0)
        if self.virtual_size != Size(width, len(lines)):
            self.virtual_size = Size(width, len(lines))
            self.refresh()
            return
        for number, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old != new:
                self.drawn += 1
                self.refresh(Region(0, number - self.scroll_offset.y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        if number >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        segments = list(self._lines[number].render(self.app.console))
        strip = Strip(Segment.apply_style(segments, self.rich_style))
        return strip.crop_extend(self.scroll_offset.x, self.scroll_offset.x + self.size.width, self.rich_style)


class TopApp(App[None]):
    """`matrixctl top`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #header, #legend, #footer, .title { height: 1; }
    #header { background: $primary; color: $text; }
    #footer { color: $text-muted; }
    .title { text-style: bold; color: $text-muted; }
    #upper { height: 14; }
    #map { width: 44; scrollbar-size: 1 1; }
    LiveTable { height: 1fr; scrollbar-size: 1 1; background: $background; }
    #prompt { height: 1; border: none; padding: 0; display: none; }
    #prompt.asked { display: block; }
    .compact #upper { height: 4; }
    .compact #map { width: 100%; }
    .compact #right, .compact #legend { display: none; }
    .ascii LiveTable, .ascii #map { scrollbar-size: 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("question_mark", "help", "help"),
        Binding("slash", "ask('/')", "filter"),
        Binding("colon", "ask(':')", "go to a kind"),
        Binding("d", "describe", "describe"),
        Binding("escape", "back", "back"),
        Binding("t", "other_theme", "light or dark"),
        Binding("r", "refresh_now", "refresh"),
    ]

    def __init__(self, source: Source, ascii: bool = False, light: bool = False) -> None:
        super().__init__()
        self.source = source
        self.ascii = ascii
        self._light = light
        self.filter_text = ""
        self.snapshot = Snapshot()
        self._focused: Widget | None = None
        """The widget that had the focus before the prompt."""

    def compose(self) -> ComposeResult:
        yield Static("reading ...", id="header")
        yield Static(drawing.legend(self.ascii), id="legend")
        with Horizontal(id="upper"):
            yield Map(id="map")
            with Vertical(id="right"):
                yield Static("busiest links", classes="title")
                yield LiveTable(drawing.LINKS, id="links")
        with Vertical():
            yield Static("instances", classes="title")
            yield LiveTable(drawing.INSTANCES, id="instances")
            yield Static("events, the newest first", classes="title")
            yield LiveTable(drawing.EVENTS, id="events")
        yield Input(id="prompt")
        yield Static("? help  / filter  : kind  d describe  q quit", id="footer")

    def on_mount(self) -> None:
        self.theme = "textual-light" if self._light else "textual-dark"
        self.screen.set_class(self.ascii, "ascii")
        self.query_one("#instances", LiveTable).focus()
        self.read()
        self.set_interval(REFRESH_WALL_S, self.read)

    def on_resize(self) -> None:
        self.call_later(lambda: self.show(self.snapshot))  # the app learns its new size after this

    # --- what is shown

    @work(thread=True, exclusive=True, group="read")
    def read(self) -> None:
        """Read in a separate thread; if nothing can be read, the screen stays as it is."""
        try:
            found = self.source.read()
        except MatrixError as refused:
            self._call_in_app(self.warn, f"{refused.reason}: {refused.message}")
            return
        self._call_in_app(self.show, found)

    def _call_in_app(self, function: Callable[..., object], *values: object) -> None:
        """Continue in the screen's thread, unless the screen was closed meanwhile."""
        if not get_current_worker().is_cancelled:
            self.call_from_thread(function, *values)

    def warn(self, text: str) -> None:
        self.screen_stack[0].query_one("#header", Static).update(Text(text, style="bold red"))

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        bottom = self.screen_stack[0]
        compact = self.size.width < drawing.FULL_COLUMNS or self.size.height < drawing.FULL_LINES
        bottom.set_class(compact, "compact")
        if snapshot.nodes or snapshot.emulated_time:
            bottom.query_one("#header", Static).update(drawing.header(snapshot, self.size.width))
        bottom.query_one(Map).show(drawing.map_lines(snapshot, compact, self.ascii))
        for id, rows in (
            ("#instances", drawing.instance_rows(snapshot)),
            ("#links", drawing.link_rows(snapshot)),
            ("#events", drawing.event_rows(snapshot)),
        ):
            bottom.query_one(id, LiveTable).show(rows, self.filter_text)

    # --- keys

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_refresh_now(self) -> None:
        self.read()

    def action_other_theme(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    async def action_back(self) -> None:
        """Close the prompt, or else clear the filter, or else close the top screen."""
        if self.screen.query("#prompt.asked"):
            self._close_prompt()
        elif self._filter_of_screen():
            self._filter("")
        elif len(self.screen_stack) > 1:
            await self.pop_screen()

    def action_ask(self, mark: str) -> None:
        """Open the prompt for a filter (/) or a kind (:), on the first screen or on a kind's."""
        while not self.screen.query("#prompt"):
            self.pop_screen()
        prompt = self.screen.query("#prompt").first(Input)
        prompt.placeholder = (
            "filter: show lines that contain this" if mark == "/" else "kind: nodes, links, operations ..."
        )
        prompt.value = self._filter_of_screen() if mark == "/" else ""
        prompt.set_class(mark == ":", "kind")
        prompt.add_class("asked")
        self._focused = self.screen.focused
        prompt.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.has_class("asked") and not event.input.has_class("kind"):
            self._filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        word = event.value.strip()
        kind = event.input.has_class("kind")
        self._close_prompt()
        if kind and word:
            self._fetch(lambda: self.source.list_kind(word), lambda found: self._open_kind(word, *found))

    def _close_prompt(self) -> None:
        prompt = self.screen.query("#prompt").first(Input)
        prompt.remove_class("asked")
        if self._focused is not None:
            self._focused.focus()

    def _filter(self, text: str) -> None:
        """Every screen has its own filter."""
        if isinstance(self.screen, KindScreen):
            self.screen.filter(text)
        else:
            self.filter_text = text
            self.show(self.snapshot)

    def _filter_of_screen(self) -> str:
        if isinstance(self.screen, KindScreen):
            return self.screen.filter_text
        return self.filter_text if len(self.screen_stack) == 1 else ""

    def _open_kind(self, word: str, name: str, titles: list[str], rows: drawing.Rows) -> None:
        """Show a kind in place of the one shown before."""
        if isinstance(self.screen, KindScreen):
            self.pop_screen()
        self.push_screen(KindScreen(word, name, titles, rows, self.ascii, (self.reload_kind, REFRESH_WALL_S)))

    def reload_kind(self, screen: KindScreen) -> None:
        self._fetch(lambda: self.source.list_kind(screen.word), lambda found: screen.set_rows(found[2]))

    def action_describe(self) -> None:
        """Describe the resource under the cursor."""
        focused = self.screen.focused
        if not isinstance(focused, LiveTable) or (key := focused.selected_key()) is None:
            return
        word = {"instances": "instances", "links": "links"}.get(str(focused.id), "")
        if isinstance(self.screen, KindScreen):
            word = self.screen.word
        if not word:
            return
        title = f"{word} {key}"
        self._fetch(lambda: self.source.describe(word, key), lambda text: self.push_screen(DetailsScreen(title, text)))

    @work(thread=True, exclusive=True, group="fetch")
    def _fetch(self, read: Callable[[], Any], show: Callable[[Any], object]) -> None:
        try:
            found = read()
        except MatrixError as refused:
            text = f"{refused.reason}: {refused.message}"
            self._call_in_app(lambda: self.notify(text, severity="error"))
            return
        self._call_in_app(show, found)

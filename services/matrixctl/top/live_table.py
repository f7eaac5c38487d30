"""A table that is updated in place: only changed cells are redrawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual.widgets import DataTable

from services.matrixctl.output.screen import coloured
from services.matrixctl.top.drawing import Rows


class LiveTable(DataTable[Text]):
    """Rows by key. `updates` counts redrawn cells."""

    def __init__(self, titles: Sequence[str], **more: Any) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False, cell_padding=1, **more)
        self._titles = [title.upper() for title in titles]
        self._shown: dict[str, tuple[str, ...]] = {}
        self.updates = 0

    def on_mount(self) -> None:
        for number, title in enumerate(self._titles):
            self.add_column(title, key=str(number))

    def show(self, rows: Rows, filter: str = "") -> None:
        """Show those of these rows in which any cell contains the filter, in this order."""
        filtered = {key: cells for key, cells in rows if filter.lower() in " ".join(cells).lower()}
        if not self.columns:
            return
        order = [key for key in self._shown if key in filtered]
        if order != list(filtered)[: len(order)]:
            # A newcomer above the others: a table has no way to insert, so it is filled again and its cursor put back.
            self._fill(filtered)
            return
        for key in self._shown.keys() - filtered.keys():
            self.remove_row(key)
        for key, cells in filtered.items():
            before = self._shown.get(key)
            if before is None:
                self.add_row(*map(_cell, cells), key=key)
                continue
            for number, (old, new) in enumerate(zip(before, cells, strict=True)):
                if old != new:
                    self.updates += 1
                    self.update_cell(key, str(number), _cell(new), update_width=True)
        self._shown = filtered

    def _fill(self, filtered: dict[str, tuple[str, ...]]) -> None:
        chosen = self.selected_key()
        top = self.scroll_y
        self.clear()
        for key, cells in filtered.items():
            self.add_row(*map(_cell, cells), key=key)
        self._shown = filtered
        if chosen in filtered:
            self.move_cursor(row=list(filtered).index(chosen), scroll=False)
        self.scroll_to(y=top, animate=False)

    def selected_key(self) -> str | None:
        """The key of the row under the cursor."""
        if not self.row_count:
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value


def _cell(text: str) -> Text:
    return Text.from_markup(coloured(text)) if "[" not in text else Text(text)

"""Texts that are printed from code and kept in files: compared by a test, rewritten by `make regenerate`.

A text fills a whole file, or the place in a Markdown file between `<!-- generated:NAME -->` and `<!-- /generated -->`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
END = "<!-- /generated -->"


@dataclass(frozen=True)
class Generated:
    """A text and its place. `source` is `module:function`, called with `arguments`, and returns the text.

    `needs`, also `module:function`, says in a sentence why the text cannot be printed here now, or returns None.
    """

    file: str
    source: str
    marker: str | None = None
    arguments: tuple[str, ...] = ()
    needs: str | None = None

    def missing(self) -> str | None:
        """Why it cannot be printed here; None when it can."""
        return None if self.needs is None else str(_named(self.needs)() or "") or None

    def text(self) -> str:
        made = _named(self.source)
        if self.arguments or not isinstance(made, str):
            made = made(*self.arguments)
        return str(made).rstrip("\n") + "\n"

    def expected(self) -> str:
        """The whole file as it should be."""
        return self.text() if self.marker is None else between(self._path.read_text(), self.marker, self.text())

    def stored(self) -> str:
        return self._path.read_text() if self._path.exists() else ""

    def rewrite(self) -> bool:
        """Bring the file up to date; whether it was not."""
        expected = self.expected()
        if self.stored() == expected:
            return False
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(expected)
        return True

    @property
    def _path(self) -> Path:
        return ROOT / self.file


def _named(source: str) -> Any:
    module, _, name = source.partition(":")
    return getattr(importlib.import_module(module), name)


def between(document: str, marker: str, text: str) -> str:
    """The document with `text` between the marker and the end that follows it. ValueError where there is no marker."""
    begin = f"<!-- generated:{marker} -->"
    head, found, rest = document.partition(begin)
    if not found or END not in rest:
        raise ValueError(f"there is no {begin} ... {END} to fill")
    return f"{head}{begin}\n{text}{END}{rest.partition(END)[2]}"

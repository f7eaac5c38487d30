"""Records the state of a stack as it changes."""

from __future__ import annotations

import logging

from services.matrixctl.supervisor.state_folder import Stack, StateFolder

log = logging.getLogger(__name__)


class StackRecord:
    """`stack.json` of a folder. A full disk must not stop supervision: it is logged once, and what could not be written
    is written as soon as possible."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._written: Stack | None = None
        self._failing = False

    def save(self, stack: Stack) -> None:
        if stack == self._written:
            return
        try:
            self._folder.write(stack)
        except OSError as wrong:
            if not self._failing:
                log.warning("what changes cannot be written down", extra={"why": str(wrong)})
            self._failing = True
        else:
            self._written, self._failing = stack, False

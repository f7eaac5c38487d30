"""The Chromium that this machine has, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def missing() -> str | None:
    """Why there is no browser here; None where there is one."""
    if any(shutil.which(name) for name in NAMES):
        return None
    return f"NO BROWSER HERE ({', '.join(NAMES)}): the console is NOT looked at in one; apt-get install chromium"


@contextmanager
def launching() -> Iterator[Callable[..., Any]]:
    """A function that starts a browser with Chromium's arguments; all of them end with the block."""
    from playwright.sync_api import sync_playwright

    path = next(found for name in NAMES if (found := shutil.which(name)))
    own = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright, ExitStack() as started:

        def launch(*arguments: str) -> Any:
            running = playwright.chromium.launch(executable_path=path, args=[*own, *arguments])
            started.callback(running.close)
            return running

        yield launch


@contextmanager
def chromium_or_skip() -> Iterator[Any]:
    """A browser for tests, which are skipped with the reason where there is none."""
    import pytest

    if why := missing():
        pytest.skip(why)
    with chromium() as running:
        yield running


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A browser, until the block ends."""
    with launching() as launch:
        yield launch(*arguments)

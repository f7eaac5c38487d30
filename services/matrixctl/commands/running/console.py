"""console: the web page of a stack, opened as whoever may read its state folder."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from services.matrixctl.clients.console_link import console_link
from services.matrixctl.commands.command import command
from services.matrixctl.commands.options import OnStack


@command("console")
def console(
    stack: OnStack,
    browser: Annotated[bool, typer.Option(help="Open a browser, where there is one.")] = True,
) -> None:
    """Print the console's address with a way in, and open it in a browser.

    The link logs in as this stack's administrator. It is good once and for a minute, and holds no token; this command
    makes another. Who has a token of their own gives it on the page.
    """
    address = console_link(stack.client)
    print(address)
    if browser and _has_display():
        import webbrowser

        webbrowser.open(address)


def _has_display() -> bool:
    """Whether a browser would be seen; text browsers are not meant."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

"""console: open a stack's web console, logged in for anyone who may read its state folder."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from services.matrixctl.clients.console_link import console_link
from services.matrixctl.commands.command import command
from services.matrixctl.commands.options import StackOptions


@command("console")
def console(
    stack: StackOptions,
    browser: Annotated[bool, typer.Option(help="Open a browser, if there is one.")] = True,
) -> None:
    """Print a login link to the web console, and open it in a browser.

    The link logs in as the stack's administrator. It is valid once, for a minute, and contains no token; run this
    command again for another. Users with a token of their own enter it on the page.
    """
    address = console_link(stack.client)
    print(address)
    if browser and _has_display():
        import webbrowser

        webbrowser.open(address)


def _has_display() -> bool:
    """Whether there is a graphical browser."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

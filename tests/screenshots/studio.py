"""Takes the pictures, and says how far one is from another.

`make regenerate` has them taken anew where they differ from what is there by more than a browser's way to draw a letter;
so another Chromium, or other fonts of the same size, changes no file.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.golden import ROOT
from tests.screenshots import browser
from tests.screenshots.machine import INSTANCE, WALL_S, recorded
from tests.screenshots.site import served

FOLDER = "tests/golden/console/pictures"
WIDTH, HEIGHT = 1280, 800
STILL = "*, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; }"
FONTS = ":root { font-family: 'DejaVu Sans' !important; --mono: 'DejaVu Sans Mono' !important; }"

BLOCK = 8
"""Pixels that are averaged, each way: how an edge is smoothed does not show in the average."""
APART = 24
"""Of 255: a block differs where the average of a colour does by more."""
TOLERATED = 0.0007
"""Part of all blocks that may differ. Hinting and smoothing of letters make it 0.0000, one NPU of another colour 0.0010."""


@dataclass(frozen=True)
class Shot:
    """A picture: which page, what of it (all, where nothing is named), in which colours."""

    path: str
    ready: str
    element: str = ""
    scheme: str = "light"


SHOTS = {
    f"{FOLDER}/cabinets.png": Shot("/", "cm-rack .npu[data-s=o]", "cm-rack"),
    f"{FOLDER}/fabric.png": Shot("/fabric?supernode=sn0", "text=5,376 links", "canvas.matrix", "dark"),
    f"{FOLDER}/workflow.png": Shot(f"/instances/default/{INSTANCE}", ".bar", "details[open] .bars"),
    "docs/pictures/console.png": Shot("/", "text=28 L2 chips, 1 not whole"),
}


class Studio:
    """A browser before the recorded machine."""

    def __init__(self, running: Any, address: str) -> None:
        self._browser, self._address = running, address
        self._scale = running.new_page()

    def take(self, shot: Shot, style: str = "") -> bytes:
        """A picture as PNG. `style` is added to the page's own."""
        context = self._browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=shot.scheme, reduced_motion="reduce",
            device_scale_factor=1, locale="en-GB", timezone_id="UTC",
        )  # fmt: skip
        try:
            page = context.new_page()
            page.clock.set_fixed_time(WALL_S)  # seconds, unlike JavaScript
            page.goto(self._address + shot.path)
            page.add_style_tag(content=STILL + FONTS + style)
            page.locator(shot.ready).first.wait_for()
            page.evaluate("document.fonts.ready")
            made: bytes = (page.locator(shot.element).first if shot.element else page).screenshot(animations="disabled")
            return made
        finally:
            context.close()

    def apart(self, one: bytes, other: bytes) -> float:
        """The part of all blocks in which two pictures differ, 1.0 where they are of another size."""
        both = [base64.b64encode(each).decode() for each in (one, other)]
        return float(self._scale.evaluate(COMPARE, [*both, BLOCK, APART]))


COMPARE = """async ([one, other, block, apart]) => {
  const pixels = async (text) => {
    const image = await createImageBitmap(await (await fetch("data:image/png;base64," + text)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const [a, b] = [await pixels(one), await pixels(other)];
  if (Math.abs(a.width - b.width) > 2 || Math.abs(a.height - b.height) > 2) return 1;
  const [width, height] = [Math.min(a.width, b.width), Math.min(a.height, b.height)];
  let blocks = 0, differ = 0;
  for (let top = 0; top + block <= height; top += block) for (let left = 0; left + block <= width; left += block) {
    const sums = [0, 0, 0];
    for (let y = top; y < top + block; y++) for (let x = left; x < left + block; x++) for (let colour = 0; colour < 3; colour++) {
      sums[colour] += a.data[(y * a.width + x) * 4 + colour] - b.data[(y * b.width + x) * 4 + colour];
    }
    blocks++;
    if (Math.max(...sums.map(Math.abs)) / (block * block) > apart) differ++;
  }
  return blocks ? differ / blocks : 1;
}"""


AS_TAKEN = ("--font-render-hinting=none", "--disable-lcd-text")


@contextmanager
def studio() -> Iterator[Studio]:
    """A browser before the machine, until the block ends."""
    with served(recorded()) as address, browser.chromium(*AS_TAKEN) as running:
        yield Studio(running, address)


@cache
def pictures() -> dict[str, bytes]:
    """Every picture as it is now; where the one that is there shows the same, that one."""
    found = {}
    with studio() as at:
        for name, shot in SHOTS.items():
            made, file = at.take(shot), ROOT / name
            stored = file.read_bytes() if file.exists() else b""
            found[name] = stored if stored and at.apart(stored, made) <= TOLERATED else made
    return found


def missing() -> str | None:
    """Why no picture can be taken here; None where it can."""
    return browser.missing() or _no_font()


def _no_font() -> str | None:
    known = shutil.which("fc-match")
    if known is None:
        return None
    found = subprocess.run([known, "DejaVu Sans"], capture_output=True, text=True, check=False, timeout=10).stdout
    return None if "DejaVu Sans" in found else "DejaVu Sans is not installed (apt-get install fonts-dejavu)"


@dataclass(frozen=True)
class Picture:
    """A picture in the registry of what is printed from code: as `Generated`, of bytes."""

    file: str
    marker: str | None = None

    def missing(self) -> str | None:
        return missing()

    def expected(self) -> bytes:
        return pictures()[self.file]

    def stored(self) -> bytes:
        path = ROOT / self.file
        return path.read_bytes() if path.exists() else b""

    def rewrite(self) -> bool:
        """Take it anew where it shows something else; whether it did."""
        expected = self.expected()
        if self.stored() == expected:
            return False
        path = ROOT / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(expected)
        return True

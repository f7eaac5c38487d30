"""The console with 22 supernodes (8,448 NPUs) that change five times a second: the cost for the gateway and a browser.

`benchmarks/console/feed.py` stands in for the services. The gateway is a separate process that shares nothing. One
reader of the live stream stands for a browser, whose tabs share it, and ten for ten browsers. One Chromium renders the
first screen. Cores are cores of CPU time.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import Figure
from services.matrixctl.supervisor.probe import free_port, probe_readiness
from services.matrixctl.supervisor.process_memory import process_memory

STREAMS = 10
WINDOW_S = 10.0
TIMEOUT_S = 60.0
MB = 1_000_000
TICKS = os.sysconf("SC_CLK_TCK")

WATCH_FRAMES = """
window.firstScreen = 0;
window.gaps = [];
const count = (selector) => document.querySelectorAll(selector).length;
const looked = (now) => {
  const drawn = count('cm-rack button.npu[data-s]') === 384 && count('.tile') === 22;
  if (!window.firstScreen && drawn) window.firstScreen = performance.now();
  if (window.before) window.gaps.push(now - window.before);
  window.before = now;
  requestAnimationFrame(looked);
};
requestAnimationFrame(looked);
"""


def measure() -> Iterator[Figure]:
    feed, port = free_port("127.0.0.1"), free_port("127.0.0.1")
    url = f"http://127.0.0.1:{port}"
    behind = [f"--{name}-url=http://127.0.0.1:{feed}" for name in ("resource", "link", "compute", "infer", "agents")]
    with (
        start_module("benchmarks.console.feed", str(feed)),
        start_module("services.console", f"--port={port}", "--log-level=WARNING", *behind) as gateway,
    ):
        wait_until(lambda: probe_readiness(url, 1.0).ready, "the gateway is ready")
        with read_streams(url, 1):
            used, _ = gateway_usage(gateway.pid, [])
            method = f"of a core; one stream (the tabs of a browser share it), 22 nodes changed at 5 Hz, {WINDOW_S:g} s"
            yield Figure("gateway, processor, ten tabs of one browser", used * 100, "%", method, 3)
        with read_streams(url, STREAMS) as read:
            used, sent = gateway_usage(gateway.pid, read)
            weight = process_memory(gateway.pid)
            method = f"{STREAMS} streams, 22 nodes changed at 5 Hz, {WINDOW_S:g} s"
            yield Figure("gateway, processor, ten browsers", used * 100, "%", f"of a core; {method}", 3)
            size = weight.pss if weight.pss is not None else weight.rss
            if size is not None:
                yield Figure("gateway, memory", size / MB, "MB", f"Pss, a process of its own; {method}", 80)
            yield Figure("live stream, each reader", sent / STREAMS / 1000, "kB/s", method)
            yield from measure_browser(url)


def gateway_usage(gateway: int, read: list[int]) -> tuple[float, float]:
    """The cores that the gateway uses, and the bytes per second that all readers receive, after a warm-up."""
    time.sleep(2.0)
    before, bytes_before = cpu_s({gateway}), sum(read)
    time.sleep(WINDOW_S)
    return (cpu_s({gateway}) - before) / WINDOW_S, (sum(read) - bytes_before) / WINDOW_S


def measure_browser(url: str) -> Iterator[Figure]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        print("no Chromium here: what a browser takes is not measured")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(WATCH_FRAMES)
        page.goto(url)
        wait_until(lambda: page.evaluate("window.firstScreen > 0"), "the first screen is drawn")
        first = page.evaluate("window.firstScreen")
        yield Figure("first screen after load", first / 1000, "s", "navigation to 384 NPUs and 22 supernodes drawn", 1)
        time.sleep(2.0)
        page.evaluate("window.gaps = []")
        browsers = descendants(os.getpid(), "chrom")
        before = cpu_s(browsers)
        time.sleep(WINDOW_S)
        used = (cpu_s(browsers) - before) / WINDOW_S
        gaps = sorted(page.evaluate("window.gaps"))
        method = f"updates at 5 Hz, {WINDOW_S:g} s, headless, drawn in software"
        yield Figure("time between frames, P95", gaps[int(len(gaps) * 0.95)], "ms", method, 20)
        yield Figure("browser, all its processes", used, "cores", method, 0.25)
        browser.close()


@contextlib.contextmanager
def start_module(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def read_streams(url: str, count: int) -> Iterator[list[int]]:
    """Read that many streams. Yields a list with the bytes that each has received so far."""
    read = [0] * count
    over = threading.Event()

    def reading(at: int) -> None:
        ended = contextlib.suppress(OSError, http.client.HTTPException)
        with ended, urllib.request.urlopen(f"{url}/live", timeout=TIMEOUT_S) as answer:
            while not over.is_set():
                read[at] += len(answer.read1(1 << 16))

    threads = [threading.Thread(target=reading, args=(at,), daemon=True) for at in range(count)]
    for thread in threads:
        thread.start()
    yield read
    over.set()


def cpu_s(pids: set[int]) -> float:
    """The CPU time that these processes have used (s)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def descendants(pid: int, name_part: str) -> set[int]:
    """The descendants of a process whose name contains `name_part`."""
    parents: dict[int, tuple[int, str]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            before, _, after = (each / "stat").read_text().rpartition(")")
            parents[int(each.name)] = int(after.split()[1]), before.partition("(")[2]

    def below(one: int) -> bool:
        return one == pid or (one in parents and parents[one][0] > 0 and below(parents[one][0]))

    return {one for one, (_, name) in parents.items() if name_part in name and below(one)}


def wait_until(condition: Any, sentence: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {TIMEOUT_S:g} s: {sentence}")
        time.sleep(0.1)


if __name__ == "__main__":
    for figure in measure():
        print(figure.line())

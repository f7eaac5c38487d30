"""Live the machine's life again, and write down what the console is told: `python -m tests.screenshots`.

Needed where the console is told something else than before; `make regenerate` then takes the pictures.
"""

from __future__ import annotations

from tests.screenshots.machine import record

if __name__ == "__main__":
    record()

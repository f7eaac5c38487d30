"""`python -m matrixresource.topology`: the supernode as a picture, its figures with sources, or an export.

--picture     the drawing and tables of README.md (default)
--readme      rewrite the printed part of README.md
--figures     every number with its mark and sources
--graphml     all three planes as GraphML;  --json  as node-link JSON
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from matrixresource.topology.diagram import BEGIN, END, picture
from matrixresource.topology.supernode import Supernode

README = Path(__file__).with_name("README.md")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m matrixresource.topology", description=__doc__)
    group = parser.add_mutually_exclusive_group()
    for flag in ("picture", "readme", "figures", "graphml", "json"):
        group.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--level", choices=("package", "die"), default="package")
    args = parser.parse_args(argv)
    sn = Supernode()
    if args.figures:
        for figure in sn.spec.figures:
            print(
                f"{figure.path} = {figure.value:g}  [{figure.mark}] {'; '.join(figure.sources)} {figure.note}".rstrip()
            )
    elif args.graphml:
        print(sn.graphml(args.level))
    elif args.json:
        print(json.dumps(sn.node_link(args.level)))
    elif args.readme:
        README.write_text(with_print(README.read_text(encoding="utf-8"), picture(sn)), encoding="utf-8")
    else:
        print(picture(sn))
    return 0


def with_print(page: str, printed: str) -> str:
    """The page with the part between its two markers replaced by `printed`."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{printed.rstrip()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(main())

"""The types of the console's modules, as JSDoc declares them, by TypeScript's own compiler (`make types` installs it)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "types"
ROOT = HERE.parents[3]
WEB = ROOT / "services" / "console" / "web"
COMPILER = HERE / "node_modules" / "typescript" / "bin" / "tsc"


def checked(project: Path) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node")
    if node is None or not COMPILER.exists():
        pytest.skip("NO TYPES CHECKED: TypeScript is not installed here (`make types`, with Node.js and npm)")
    return subprocess.run(
        [node, str(COMPILER), "--project", str(project)], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_modules_are_of_the_types_they_say() -> None:
    done = checked(HERE / "tsconfig.json")
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    web = tmp_path / "web"
    shutil.copytree(WEB, web)
    settings = json.loads((HERE / "tsconfig.json").read_text()) | {"include": [f"{web}/**/*.js"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    file = web / "core" / "live.js"
    file.write_text(file.read_text().replace("#port = null;", '#port = "7";'))
    done = checked(tmp_path / "tsconfig.json")
    assert done.returncode != 0
    assert "live.js" in done.stdout


def test_every_module_has_its_types_checked() -> None:
    unchecked = [file.name for file in WEB.rglob("*.js") if not file.read_text().startswith("// @ts-check")]
    assert not unchecked

"""The types of the console's modules, as JSDoc declares them, by TypeScript's own compiler (`make types` installs it)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.services.console import typescript
from tests.services.console.typescript import HERE, ROOT

WEB = ROOT / "services" / "console" / "web"


@pytest.fixture
def tsc() -> Path:
    found = typescript.compiler()
    if found is None:
        pytest.skip("NO TYPES CHECKED: TypeScript is not installed here (`make types` installs it)")
    return found


def test_the_modules_are_of_the_types_they_say(tsc: Path) -> None:
    done = typescript.check(tsc)
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_wrong_type_is_found(tsc: Path, tmp_path: Path) -> None:
    web = tmp_path / "web"
    shutil.copytree(WEB, web)
    settings = json.loads((HERE / "tsconfig.json").read_text()) | {"include": [f"{web}/**/*.js"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    file = web / "core" / "live.js"
    file.write_text(file.read_text().replace("#port = null;", '#port = "7";'))
    done = typescript.check(tsc, tmp_path / "tsconfig.json")
    assert done.returncode != 0
    assert "live.js" in done.stdout


def test_every_module_has_its_types_checked() -> None:
    unchecked = [file.name for file in WEB.rglob("*.js") if not file.read_text().startswith("// @ts-check")]
    assert not unchecked

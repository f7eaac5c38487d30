"""A state folder of another version is refused in a sentence that says what to do, and left as it is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import create_engine, inspect, text


@pytest.mark.parametrize("service", ["resource", "link", "compute", "infer"])
def test_tables_of_another_version_are_refused_in_a_sentence(tmp_path, service):
    url = f"sqlite:///{tmp_path / 'other.db'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0009')"))
    command = [sys.executable, "-m", f"services.{service}", "--state", str(tmp_path), "--database", url, "--port", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert "revision 0009" in result.stderr
    assert "begin with an empty state folder" in result.stderr
    assert inspect(engine).get_table_names() == ["alembic_version"]

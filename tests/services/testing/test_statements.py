"""Statements that one service of a process of tests has compiled are not compiled again by another's engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, select
from sqlalchemy.sql.compiler import SQLCompiler

from services.chassis.database import DatabaseEngine
from services.testing.statements import share_statements

THINGS = Table("things", MetaData(), Column("number", Integer, primary_key=True))


def test_another_engine_compiles_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    begin = SQLCompiler.__init__

    def counted(self: SQLCompiler, *of: object, **how: object) -> None:
        compiled.append(self)
        begin(self, *of, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(SQLCompiler, "__init__", counted)
    found = []
    for number in (1, 2):
        database = share_statements(DatabaseEngine(f"sqlite:///{tmp_path / f'{number}.db'}"))
        THINGS.metadata.create_all(database.engine)
        before = len(compiled)
        with database.sessions() as session:
            session.execute(THINGS.insert().values(number=number))
            found.append(session.execute(select(THINGS.c.number)).scalars().all())
        if number == 2:
            assert compiled[before:] == []
        database.close()
    assert found == [[1], [2]], "each has its own database"

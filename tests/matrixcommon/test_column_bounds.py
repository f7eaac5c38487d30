"""Tests on SQLite refuse to store what PostgreSQL would refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import BigInteger, Integer, String, create_engine, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DataError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

Values = dict[str, Any]


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "rows"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(5))
    size: Mapped[int] = mapped_column(BigInteger)


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as opened:
        opened.add(Row(id=1, name="first", size=1))
        opened.commit()
        yield opened


VALUES_WITHIN_BOUNDS: Values = {"id": (1 << 31) - 1, "name": "x" * 5, "size": -(1 << 63)}
VALUES_BEYOND_BOUNDS: list[Values] = [
    {"id": 1 << 31, "name": "x", "size": 1},
    {"id": 2, "name": "x" * 6, "size": 1},
    {"id": 2, "name": "a\0", "size": 1},
    {"id": 2, "name": "x", "size": 1 << 63},
]


def _insert(session: Session, values: Values) -> None:
    session.add_all([Row(id=7, name="other", size=1), Row(**values)])
    session.flush()


def _update(session: Session, values: Values) -> None:
    row = session.get_one(Row, 1)
    for name, value in values.items():
        setattr(row, name, value)
    session.flush()


WRITES: dict[str, Callable[[Session, Values], object]] = {
    "added": _insert,
    "changed": _update,
    "inserted": lambda session, values: session.execute(insert(Row), [values]),
    "several": lambda session, values: session.execute(insert(Row).values([{"id": 3, "name": "x", "size": 1}, values])),
    "on conflict": lambda session, values: session.execute(
        insert(Row).values(id=1, name="x", size=1).on_conflict_do_update(index_elements=["id"], set_=values)
    ),
    "updated": lambda session, values: session.execute(update(Row).where(Row.id == 1).values(values)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("values", VALUES_BEYOND_BOUNDS, ids=["id", "name", "NUL", "size"])
def test_a_value_beyond_its_column_is_refused(session, write, values) -> None:
    with pytest.raises(DataError):
        write(session, values)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_values_at_their_columns_bounds_are_stored(session, write) -> None:
    write(session, VALUES_WITHIN_BOUNDS)
    assert (
        session.scalars(select(Row.name).where(Row.id == VALUES_WITHIN_BOUNDS["id"])).one()
        == VALUES_WITHIN_BOUNDS["name"]
    )


def test_compared_values_may_exceed_the_column_but_contain_no_nul(session) -> None:
    assert session.execute(update(Row).where(Row.name == "longer than five").values(name="x")).rowcount == 0
    with pytest.raises(DataError):
        session.scalars(select(Row).where(Row.name == "a\0")).all()

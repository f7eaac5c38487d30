"""The events of a watch travel in pieces: nothing is lost or turned around, and no piece grows with what waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from matrixcommon.api.watch_stream import CHUNK_BYTES, joined_chunks

LENGTH_MAX = CHUNK_BYTES // 3


@given(lengths=st.lists(st.integers(1, LENGTH_MAX), max_size=20))
def test_chunks_contain_all_events_whole_and_in_order(lengths):
    events = [bytes([at]) * length for at, length in enumerate(lengths)]
    found = [*joined_chunks(events)]
    assert b"".join(found) == b"".join(events)
    assert all(CHUNK_BYTES <= len(each) < CHUNK_BYTES + LENGTH_MAX for each in found[:-1])
    assert all(found)


def test_events_are_generated_lazily():
    made = []

    def events():
        for at in range(10):
            made.append(at)
            yield bytes(CHUNK_BYTES)

    assert len(next(joined_chunks(events()))) == CHUNK_BYTES
    assert made == [0]

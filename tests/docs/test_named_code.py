"""Documentation leads to code that is there."""

from __future__ import annotations

import pytest

from tests.docs.named_code import Code, pages, read_code, unknown


@pytest.fixture(scope="module")
def code() -> Code:
    return read_code()


@pytest.mark.parametrize("page", pages())
def test_what_a_page_names_is_in_the_code(code: Code, page: str) -> None:
    assert not list(unknown(code, page))


def test_what_is_not_there_is_found(code: Code) -> None:
    assert code.has_file("max_min.py")
    assert not code.has_file("filling.py")
    assert code.resolves("SliceController", "reroute")
    assert not code.resolves("SliceController", "steer")
    assert code.resolves("max_min_arrays", "fair_rates")
    assert code.resolves("filling", "fair_rates") is None

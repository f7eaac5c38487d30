"""A patch brings a reader of one document to the other, and no further."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.console.live.merge_patch import apply_merge_patch, merge_patch

LEAVES = st.sampled_from([True, 0, 1, "x", [1], [1, 2]])
NAMES = st.sampled_from("abc")
DOCUMENTS = st.dictionaries(NAMES, LEAVES | st.dictionaries(NAMES, LEAVES | st.dictionaries(NAMES, LEAVES)))


@given(DOCUMENTS, DOCUMENTS)
def test_a_patch_makes_the_one_into_the_other(before, after):
    assert apply_merge_patch(before, merge_patch(before, after)) == after


@given(DOCUMENTS)
def test_equal_documents_need_no_patch(document):
    assert merge_patch(document, {**document}) == {}


def test_only_what_changed_is_sent():
    before = {"states": {"n0": "ffff", "n1": "hhhh"}, "holders": {"n1": "a"}}
    after = {"states": {"n0": "ffff", "n1": "ffff"}, "holders": {}}
    assert merge_patch(before, after) == {"states": {"n1": "ffff"}, "holders": {"n1": None}}

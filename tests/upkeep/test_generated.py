"""What is printed from code stands in the files as printed."""

import pytest

from tests.golden import Generated, between
from tests.screenshots.studio import Picture
from tests.upkeep.generated import GENERATED


@pytest.mark.parametrize("entry", GENERATED, ids=lambda entry: f"{entry.file}:{entry.marker or 'whole'}")
def test_generated_text_is_up_to_date(entry: Generated | Picture) -> None:
    if why := entry.missing():
        pytest.skip(f"{why}: {entry.file} was not compared")
    assert entry.stored() == entry.expected(), "run `make regenerate`"


def test_a_text_goes_between_its_marker_and_the_end_that_follows() -> None:
    document = "a\n<!-- generated:x -->\nold\n<!-- /generated -->\nb\n<!-- generated:y -->\n<!-- /generated -->\n"
    filled = between(document, "x", "new\n")
    assert filled == document.replace("old\n", "new\n")
    assert between(filled, "x", "new\n") == filled


def test_a_missing_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="generated:z"):
        between("nothing here", "z", "text\n")

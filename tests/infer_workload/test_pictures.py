"""The README's pictures are those the code prints."""

from importlib.resources import files

import infer_workload
from tests.upkeep.infer_pictures import pictures


def test_the_readme_shows_what_the_code_prints():
    readme = files(infer_workload).joinpath("README.md").read_text()
    for picture in pictures():
        assert picture in readme, "print them with `python -m tests.upkeep.infer_pictures`"

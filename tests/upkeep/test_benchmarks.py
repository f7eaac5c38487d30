"""Every benchmark can be run by its name alone: `make bench` runs all of them, one after the other."""

from __future__ import annotations

import importlib
import inspect

import pytest

from benchmarks.__main__ import list_benchmarks, main


def test_each_takes_nothing_and_says_what_it_measures() -> None:
    assert len(list_benchmarks()) > 10
    for name in list_benchmarks():
        module = importlib.import_module(f"benchmarks.{name}")
        assert not inspect.signature(module.measure).parameters, f"{name}: measure() takes nothing"
        assert (module.__doc__ or "").strip(), f"{name} does not say what it measures"


def test_one_that_there_is_not_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speed"]) == 2
    assert "there is no benchmark speed; there are allocation, " in capsys.readouterr().err

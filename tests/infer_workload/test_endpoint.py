"""Where a deployment says that its endpoint is."""

from __future__ import annotations

from typing import Any

import pytest

from services.infer.main import InferSettings


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ({}, "http://127.0.0.1:8404/v1"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:8404/v1"),
        ({"host": "::"}, "http://[::1]:8404/v1"),
        ({"host": "fd00::7"}, "http://[fd00::7]:8404/v1"),
        ({"host": "0.0.0.0", "public_url": "https://infer.example/"}, "https://infer.example/v1"),
    ],
)
def test_it_is_an_address_that_can_be_asked(given: dict[str, Any], endpoint: str) -> None:
    assert InferSettings(port=8404, **given).endpoint == endpoint

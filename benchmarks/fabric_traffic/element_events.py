"""Names for the events that can happen to elements of a UB plane."""

from __future__ import annotations

from matrixlink.forwarding.element_state import ElementEvent


def lost(kind: str, *at: int) -> ElementEvent:
    return ElementEvent(kind, at, share=0.0)


def recovered(kind: str, *at: int) -> ElementEvent:
    return ElementEvent(kind, at, share=1.0)


def drain(kind: str, *at: int) -> ElementEvent:
    return ElementEvent(kind, at, drained=True)


def undrain(kind: str, *at: int) -> ElementEvent:
    return ElementEvent(kind, at, drained=False)

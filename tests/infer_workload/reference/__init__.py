"""The engine against a slow one that takes every step."""

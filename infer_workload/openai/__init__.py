"""The OpenAI-compatible endpoint and its synthetic tokens.

It schedules nothing.
"""

"""Shared infrastructure of controllers: work queue, informers and event recorder.

It knows nothing of how any kind behaves.
"""

"""Trials in virtual time.

It needs no running service.
"""

"""Experiments in virtual time; they need no running service."""

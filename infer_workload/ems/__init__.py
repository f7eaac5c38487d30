"""Elastic memory service: the caching pool over the CPU memory of the instance's nodes."""

"""Simulated pools of a served model under a trace, and the policies that size them."""

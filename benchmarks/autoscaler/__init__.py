"""Pools of a served model under a trace, and who decides how large they are."""

"""The emulated nodes: one process plays many, both agents on each."""

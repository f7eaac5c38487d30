"""Communicators: named traffic of slices on the UB plane, as flows that follow the forwarding tables."""

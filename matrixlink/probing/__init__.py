"""Probing: agents send small probes to each other over every path, and MatrixLink reads from many agents' results which
link or switch is at fault although every port says it is well."""

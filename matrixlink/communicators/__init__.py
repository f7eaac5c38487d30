"""Named traffic of slices on the UB plane, as flows that follow the forwarding tables.

It promises no bandwidth; admission does.
"""

"""The rule of the tables again, in plain Python over sets, entry by entry; and walks over tables, hop by hop."""

from __future__ import annotations

from matrixlink.forwarding.clos_shape import NONE


class ReferenceTables:
    """What `condition` leaves, asked element by element."""

    def __init__(self, condition):
        self.shape, self.condition = condition.shape, condition

    def up(self, kind, *at, drains=True):
        """Whether an element stands, with the chips that it hangs on."""
        condition, nodes = self.condition, self.shape.nodes
        status = condition.share[kind][at] > 0 and not (drains and condition.drained[kind][at])
        if kind == "end":
            return status and self.up("l1", *at[:2], drains=drains)
        if kind == "cable":
            p, node, k = at
            return (
                status and self.up("l1", p, node, drains=drains) and self.up("l2", p, node // nodes, k, drains=drains)
            )
        if kind == "trunk":
            p, s, k, j = at
            return status and self.up("l2", p, s, k, drains=drains) and self.up("l3", p, k, j, drains=drains)
        return bool(status)

    def spines(self, p, k, a, b):
        return [j for j in range(self.shape.spines) if self.up("trunk", p, a, k, j) and self.up("trunk", p, b, k, j)]

    def serving(self, p, n, m):
        """L2 numbers by which node n reaches node m."""
        a, b = n // self.shape.nodes, m // self.shape.nodes
        return [
            k for k in range(self.shape.chips)
            if self.up("cable", p, n, k) and self.up("cable", p, m, k) and (a == b or self.spines(p, k, a, b))
        ]  # fmt: skip

    def l1(self, p, n, m, e):
        shape = self.shape
        if n == m:
            return e if self.up("end", p, m, e, drains=False) else NONE
        living = self.serving(p, n, m)
        if not living or not self.up("end", p, m, e):
            return NONE
        wanted = (e if e < shape.dies else e - shape.dies) % shape.chips
        return shape.ends + (wanted if wanted in living else living[(n + m) % len(living)])

    def l2(self, p, s, k, m, e):
        shape = self.shape
        there, here = divmod(m, shape.nodes)
        if not self.up("cable", p, m, k, drains=False) or not self.up("end", p, m, e, drains=False):
            return NONE
        if s == there:
            return here
        living = self.spines(p, k, s, there)
        if not living:
            return NONE
        wanted = here % shape.spines
        return shape.nodes + (wanted if wanted in living else living[(s + there + here) % len(living)])

    def l3(self, p, k, j, m, e):
        there = m // self.shape.nodes
        reached = self.up("trunk", p, there, k, j, drains=False) and self.up("cable", p, m, k, drains=False)
        return there if reached and self.up("end", p, m, e, drains=False) else NONE


def trace_path(tables, plane, source, target):
    """The elements that a packet meets, hop by hop over the tables; None when some table has no entry for it."""
    shape, nodes = tables.shape, tables.shape.nodes
    n, from_end = divmod(source, shape.ends)
    m, to_end = divmod(target, shape.ends)
    met = [("end", plane, n, from_end)]
    port = int(tables.l1[plane, n, m, to_end])
    if port != NONE and n != m:
        k = port - shape.ends
        s = n // nodes
        met.append(("cable", plane, n, k))
        port = int(tables.l2[plane, s, k, m, to_end])
        if port >= nodes:
            j = port - nodes
            met.append(("trunk", plane, s, k, j))
            port = s = int(tables.l3[plane, k, j, m, to_end])
            if port == NONE:
                return None
            met.append(("trunk", plane, s, k, j))
            port = int(tables.l2[plane, s, k, m, to_end])
        if port == NONE:
            return None
        assert s * nodes + port == m
        met.append(("cable", plane, m, k))
        port = int(tables.l1[plane, m, m, to_end])
    if port == NONE:
        return None
    assert port == to_end
    return [*met, ("end", plane, m, to_end)]

"""Cost estimates of CEL rules, from the schema, when a CRD is written; meter.py counts the actual cost.

A step costs one; a loop (`all`, `exists`, `map`...) costs its body for every item. The estimate uses the largest sizes
that the schema allows, or what fits into a request of 3 MiB if it sets no limit. It is somewhat lower than upstream's,
so that nothing is rejected here that is accepted there. Limits of the estimate, of a call and of a request: public
documentation "Resource use by validation functions" and k8s.io/apiserver. A step takes well under a microsecond here.
"""

from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.schema.structural import Schema

REQUEST_BYTES_MAX = 3 * 2**20
RULE_ESTIMATE_MAX = 10_000_000
SCHEMA_ESTIMATE_MAX = 100_000_000
CALL_MAX = 1_000_000
REQUEST_MAX = 10_000_000
LOOPS = frozenset(("all", "exists", "exists_one", "map", "filter"))
SIZE_MIN = {"string": 2, "integer": 1, "number": 1, "boolean": 4, "object": 2, "array": 2}


@dataclass(frozen=True)
class Extent:
    """The maximum size of a value and the extents of its parts, from its schema."""

    schema: Schema | None = None

    @property
    def size(self) -> int:
        if self.schema is None:
            return 1
        if self.schema.type == "array":
            return max_elements(self.schema.max_items, self.schema.items)
        if isinstance(self.schema.additional, Schema):
            return max_elements(self.schema.max_properties, self.schema.additional, 3)
        return max(len(self.schema.properties), 1)

    def part(self, name: str) -> "Extent":
        return Extent(self.schema.child(name) if self.schema is not None else None)

    @property
    def item(self) -> "Extent":
        """The extent of an item; without a schema for maps, whose loop variable is a key."""
        return Extent(self.schema.items if self.schema is not None and self.schema.type == "array" else None)


def max_elements(stated: int | None, item: Schema | None, extra: int = 0) -> int:
    smallest = SIZE_MIN.get(item.type, 1) if item is not None else 1
    possible = REQUEST_BYTES_MAX // (smallest + 1 + extra)
    return possible if stated is None else min(stated, possible)


def cost(tree: Any, known: dict[str, Extent]) -> int:
    """Estimated cost of an expression in steps, given the extents of its variables."""
    data = getattr(tree, "data", None)
    if data is None:
        return 0
    if data == "member_dot_arg" and str(tree.children[1]) in LOOPS and len(tree.children) > 2:
        holder, variable = tree.children[0], _ident(tree.children[2].children[0])
        extent = extent_of(holder, known)
        inner = known | {variable: extent.item if extent else Extent()}
        body = sum(cost(child, inner) for child in tree.children[2].children[1:])
        return cost(holder, known) + (extent.size if extent else 1) * (1 + body)
    own = 1 if data in ("ident", "member_dot", "member_index", "member_dot_arg", "ident_arg") else 0
    return own + sum(cost(child, known) for child in tree.children)


def extent_of(tree: Any, known: dict[str, Extent]) -> Extent | None:
    """The extent of `self.a.b`, `x[0]`, and of filters and maps over them; None if unknown."""
    data = getattr(tree, "data", None)
    if data == "ident":
        return known.get(str(tree.children[0]))
    if data == "member_dot":
        holder = extent_of(tree.children[0], known)
        return holder.part(str(tree.children[1])) if holder else None
    if data == "member_index":
        holder = extent_of(tree.children[0], known)
        return holder.item if holder else None
    if data == "member_dot_arg" and str(tree.children[1]) in ("filter", "map"):
        return extent_of(tree.children[0], known)
    if data is not None and len(tree.children) == 1:
        return extent_of(tree.children[0], known)
    return None


def _ident(tree: Any) -> str:
    while getattr(tree, "data", None) is not None and tree.data != "ident" and tree.children:
        tree = tree.children[0]
    return str(tree.children[0]) if getattr(tree, "data", None) == "ident" else ""


def has_loops(tree: Any) -> bool:
    return any(str(node.children[1]) in LOOPS for node in tree.find_data("member_dot_arg"))


def format_factor(factor: float) -> str:
    return "more than 100x" if factor > 100 else f"{factor:.1f}x"

"""No module leads back to itself by imports, those for types alone included: each can be read after what it imports."""

from __future__ import annotations

import grimp
import networkx as nx

from tests.upkeep.rooms import PACKAGES


def test_no_imports_lead_back() -> None:
    packages = dict.fromkeys(each.partition(".")[0] for each in PACKAGES)
    read = grimp.build_graph(*packages, exclude_type_checking_imports=False)
    graph = nx.DiGraph(
        (module, each) for module in read.modules for each in read.find_modules_directly_imported_by(module)
    )
    circles = [sorted(each) for each in nx.strongly_connected_components(graph) if len(each) > 1]
    assert not circles

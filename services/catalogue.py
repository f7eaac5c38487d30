"""The processes of a stack, their ports, and which calls which. Tests compare Compose and the chart with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """One process: its module, its port (0: none), the processes it calls, and its purpose."""

    name: str
    module: str
    port: int
    calls: tuple[str, ...]
    purpose: str
    has_database: bool = False
    keeps_files: bool = False
    """Whether its state folder holds more than a SQLite database, so that it needs a disk with PostgreSQL too."""
    scheme: str = "http"
    optional: tuple[str, ...] = ()
    """The called processes that it can do without."""
    role: str = ""
    """The role of the token that it sends: no more than its calls need. It acts for all projects."""
    shares_modules: bool = True
    """Whether it imports most of what the others do; one that does not need not wait until that is imported."""


PROCESSES: tuple[Process, ...] = (
    Process("resource", "services.resource", 8401, (), "inventory, topology, allocations", has_database=True),
    Process(
        "link",
        "services.link",
        8402,
        ("resource",),
        "planes, slices, routes, link health",
        has_database=True,
        role="viewer",
    ),
    Process(
        "compute",
        "services.compute",
        8403,
        ("resource", "link", "infer", "agents"),
        "instances, recovery, autoscaling",
        has_database=True,
        optional=("infer", "agents"),
        role="admin",
    ),
    Process(
        "infer",
        "services.infer",
        8404,
        ("resource", "link", "agents"),
        "CloudMatrix-Infer and its endpoint",
        has_database=True,
        role="editor",
    ),
    Process(
        "agents",
        "services.node_agent",
        8405,
        ("resource", "link"),
        "the emulated nodes and their agents",
        keeps_files=True,
        role="agent",
    ),
    Process(
        "kube",
        "services.kube",
        8443,
        (),
        "the embedded Kubernetes API",
        has_database=True,
        keeps_files=True,
        scheme="https",
        shares_modules=False,
    ),
    Process(
        "operator",
        "services.operator",
        8406,
        ("kube", "resource", "link", "compute", "infer", "agents"),
        "CloudMatrixInstance and related kinds, as Kubernetes resources",
        role="admin",
    ),
    Process(
        "console",
        "services.console",
        8400,
        ("resource", "link", "compute", "infer", "agents"),
        "the web page",
        optional=("resource", "link", "compute", "infer", "agents"),
        role="viewer",
    ),
)

BY_NAME: dict[str, Process] = {process.name: process for process in PROCESSES}

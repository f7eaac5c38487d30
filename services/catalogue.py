"""The processes of a stack, their ports, and who calls whom. Compose and the chart are compared with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """One process: how it is started, where it listens (0: nowhere), whom it calls, what it is for."""

    name: str
    module: str
    port: int
    calls: tuple[str, ...]
    purpose: str
    has_database: bool = False
    keeps_files: bool = False
    """Whether its state folder holds more than the SQLite file of a database: it needs a disk on PostgreSQL too."""
    scheme: str = "http"
    optional: tuple[str, ...] = ()
    """Which of those it calls it can do without."""
    role: str = ""
    """Of the token it shows to those it calls: no more than its calls need. It acts for all projects."""


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

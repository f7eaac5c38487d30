"""Printers of texts that belong to the project as a whole; what belongs to one package is printed there."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

from services.catalogue import PROCESSES
from tests.upkeep.state_pictures import picture as state_picture


def process_table() -> str:
    """The processes of a stack, for the README."""
    lines = ["| process | port | what it is for | calls |", "| --- | --- | --- | --- |"]
    for process in PROCESSES:
        calls = ", ".join(process.calls) or "-"
        lines.append(f"| `{process.name}` | {process.port} | {process.purpose} | {calls} |")
    return "\n".join(lines) + "\n"


def published_figures() -> str:
    """Published figures beside what the timing model says, for the page about it."""
    from infer_workload.experiments.validation.tables import format_markdown
    from infer_workload.experiments.validation.validation import validate

    return format_markdown(validate())


def command_reference() -> str:
    """Every command of matrixctl with its arguments and options, from the command line's own definitions."""
    import typer

    from services.matrixctl.main import EPILOG, app

    root = typer.main.get_command(app())
    lines = ["# matrixctl", "", "Printed from the code by `make regenerate`.", "", " ".join(EPILOG.split()), ""]
    for path, command in _commands("matrixctl", root):
        if command.hidden:
            continue
        text, _, examples = (command.help or "").strip().partition("\nExamples:\n")
        lines += [f"## {path}", "", *(line.strip() for line in text.strip().splitlines()), ""]
        if examples:
            lines += ["```", *(line.strip() for line in examples.splitlines()), "```", ""]
        rows = [_parameter(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            lines += ["| | | default |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def reasons_reference() -> str:
    """Every reason, with what it means and what to do then."""
    from itertools import groupby

    from matrixcommon.model.reasons import reasons

    lines = [
        "# Reasons",
        "",
        "Printed from the code by `make regenerate`; `matrixctl explain REASON` says the same.",
        "",
    ]
    for group, entries in groupby(reasons().values(), key=lambda each: each.group):
        lines += [f"## {group}", "", "| reason | what it means | what to do |", "| --- | --- | --- |"]
        lines += [f"| `{each.name}` | {each.means} | {each.do or '-'} |" for each in entries]
        lines += [""]
    return "\n".join(lines)


def _commands(path: str, command: Any) -> list[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        return [(path, command)]
    own = [(path, command)] if command.invoke_without_command and path != "matrixctl" else []
    children = sorted(command.commands.items())
    return own + [found for name, child in children for found in _commands(f"{path} {name}", child)]


def _parameter(parameter: Any) -> str:
    argument = parameter.param_type_name == "argument"
    shown = parameter.name.upper() if argument else ", ".join(parameter.opts)
    default = parameter.default if not callable(parameter.default) else None
    text = "required" if parameter.required else "-" if default in (None, "", (), False) else f"`{default}`"
    return f"| `{shown}` | {(getattr(parameter, 'help', None) or '').replace('|', '/')} | {text} |"


def settings_reference() -> str:
    """Every setting of every process, from its settings class."""
    lines = [
        "# Settings of the processes",
        "",
        "Printed from the code by `make regenerate`. Each is a flag (`--port`) and an environment variable",
        "(`CLOUDMATRIX_PORT`). `matrixctl up` and docker-compose set what a stack needs.",
        "",
    ]
    for process in PROCESSES:
        settings = settings_class(process.module)
        if settings is None:
            continue
        lines += [f"## {process.name}", "", (settings.__doc__ or "").strip(), ""]
        lines += ["| setting | what it says | default |", "| --- | --- | --- |"]
        for name, field in settings.model_fields.items():
            default = "-" if field.default is None or field.default == "" else f"`{field.default}`"
            lines.append(f"| `CLOUDMATRIX_{name.upper()}` | {field.description} | {default} |")
        lines.append("")
    return "\n".join(lines)


def settings_class(module: str) -> Any:
    """The most derived Settings that a service's main (or settings) module defines; None for one not there yet."""
    from services.chassis.settings import Settings

    found = []
    for name in ("settings", "main"):
        try:
            loaded = importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError as missing:
            if not str(missing.name).startswith(module):
                raise
            continue
        kinds = [kind for kind in vars(loaded).values() if isinstance(kind, type) and issubclass(kind, Settings)]
        found += [kind for kind in kinds if kind.__module__ == loaded.__name__]
    return max(found, key=lambda kind: len(kind.__mro__), default=None)


def authorization() -> str:
    """Every route by service: whose it is, which roles may."""
    from infer_workload.access import ACCESS as infer
    from matrixcommon.api.authorization import ROLES
    from matrixcompute.access import ACCESS as compute
    from matrixlink.api.access import ACCESS as link
    from matrixresource.api.access import ACCESS as resource
    from services.node_agent.access import ACCESS as agents

    lines = []
    for rules in (resource, link, compute, infer, agents):
        lines += [
            f"### {rules.service}",
            "",
            f"| route | of | {' | '.join(ROLES)} |",
            "| --- | --- |" + " --- |" * len(ROLES),
        ]
        for rule in rules.by_route.values():
            marks = ("yes" if role in rule.roles else "" for role in ROLES)
            route = f"{rule.method} {rule.path.replace('{}', '{name}')}"
            lines.append(
                f"| `{route}`{'' if rule.mutates else ' (reads)' if rule.method != 'GET' else ''} | {rule.scope.value} | {' | '.join(marks)} |"
            )
        lines.append("")
    return "\n".join(lines).strip()


def fault_kinds() -> str:
    """The one catalogue of faults, for people."""
    from matrixresource.agent.fault_catalogue import CATALOGUE

    lines = [
        "| kind | on a | what happens | the incumbent's level | how it is found out |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows = (
        f"| `{kind}` | {each.scope} | {each.description} | {each.level} | {each.detected_by} |"
        for kind, each in CATALOGUE.items()
    )
    return "\n".join([*lines, *rows])


def allocation_states() -> str:
    from matrixresource.store.allocation_states import ALLOCATION_STATES

    return state_picture(ALLOCATION_STATES)


def node_states() -> str:
    from matrixresource.nodes.states import NODE_STATES

    return state_picture(NODE_STATES)


def defragmentation_states() -> str:
    from matrixresource.store.defragmentations import DEFRAGMENTATION_STATES

    return state_picture(DEFRAGMENTATION_STATES)


def instance_states() -> str:
    from matrixcompute.model.states import INSTANCE_STATES

    return state_picture(INSTANCE_STATES)


def maintenance_states() -> str:
    from matrixcompute.maintenance.states import MAINTENANCE_STATES

    return state_picture(MAINTENANCE_STATES)


def scenario_run_states() -> str:
    from matrixcompute.scenarios.states import SCENARIO_RUN_STATES

    return state_picture(SCENARIO_RUN_STATES)


def openapi(service: str) -> str:
    """The OpenAPI document that a service serves, built without starting it."""
    with tempfile.TemporaryDirectory() as folder:
        return json.dumps(application(service, Path(folder)).openapi(), indent=1, sort_keys=True) + "\n"


def application(service: str, folder: Path) -> Any:
    from matrixresource.client import ResourceClient
    from services.chassis.database import DatabaseEngine
    from services.chassis.http import http_client
    from tests.clocks import FixedClock

    module = importlib.import_module(f"services.{'node_agent' if service == 'agents' else service}.main")
    clock, database = FixedClock(), DatabaseEngine(f"sqlite:///{folder / 'empty.db'}")
    if service == "agents":
        from matrixlink.client import LinkClient
        from services.node_agent.fleet.store import FleetStore

        settings = module.AgentSettings(state=folder)
        http = http_client("http://127.0.0.1")
        fleet = module.build_fleet(settings, clock, FleetStore(None), ResourceClient(http), LinkClient(http))
        return module.build(fleet, settings)
    database.migrate(module.MIGRATIONS)
    if service == "compute":
        return module.build(module.ComputeSettings(state=folder), clock, database, None)
    return module.build(getattr(module, f"{service.capitalize()}Settings")(state=folder), clock, database)


def stages() -> str:
    """Each piece of work of an agent with its stages and their delays, as one picture."""
    from matrixlink.agent import link_stages
    from matrixresource.agent.agent import node_stages

    lines = ["| agent | work | stages (emulated seconds) |", "| --- | --- | --- |"]
    for agent, works in (("resource", node_stages()), ("link", link_stages())):
        for work, entries in works.items():
            text = ", ".join(f"{s.stage} {s.delay_s:g}±{s.jitter_s:g}" for s in entries)
            lines.append(f"| {agent} | {work} | {text} |")
    return "\n".join(lines) + "\n"

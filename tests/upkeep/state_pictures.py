"""State machines as a package's README shows them."""

from __future__ import annotations

from matrixcommon.model.state_machine import StateMachine


def picture(machine: StateMachine) -> str:
    """A Mermaid state diagram with a table of sentences."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {machine.start}"]
    for name, after in machine.moves.items():
        lines += [f"    {name} --> {to}{_by(machine, name, to)}" for to in machine.states if to in after]
        if not after:
            lines.append(f"    {name} --> [*]")
    lines += ["```", "", f"| {machine.kind} is | which means | deadline |", "| --- | --- | --- |"]
    for state in machine.states.values():
        deadline = "-" if state.deadline_s is None else f"{state.deadline_s:g} s"
        lines.append(f"| {state.name} | {state.sentence} | {deadline} |")
    if machine.verbs:
        lines += ["", "| verb | of one that is | what it does |", "| --- | --- | --- |"]
    for verb in machine.verbs.values():
        risk = f" With `force`: {verb.risk}." if verb.risk else ""
        lines.append(f"| `:{verb.name}` | {', '.join(verb.after)} | {verb.sentence}.{risk} |")
    return "\n".join(lines) + "\n"


def _by(machine: StateMachine, before: str, after: str) -> str:
    who = machine.by.get((before, after))
    return f" : {', '.join(each.replace(':', '') for each in who)}" if who else ""

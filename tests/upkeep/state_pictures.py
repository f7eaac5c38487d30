"""State machines as a package's README shows them."""

from __future__ import annotations

from matrixcommon.model.state_machine import StateMachine


def picture(machine: StateMachine) -> str:
    """A Mermaid state diagram with a table of sentences."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {machine.start}"]
    for name, after in machine.moves.items():
        lines += [f"    {name} --> {to}" for to in machine.states if to in after]
        if not after:
            lines.append(f"    {name} --> [*]")
    lines += ["```", "", f"| {machine.kind} is | which means | deadline |", "| --- | --- | --- |"]
    for state in machine.states.values():
        deadline = "-" if state.deadline_s is None else f"{state.deadline_s:g} s"
        lines.append(f"| {state.name} | {state.sentence} | {deadline} |")
    return "\n".join(lines) + "\n"

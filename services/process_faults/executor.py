"""ProcessExecutor: injects faults on the services of a stack for scenarios of MatrixCompute.

It runs in the process of the emulated nodes, which also takes hardware faults. It is not configured: it works if its
state folder is that of a stack with a supervisor that restarts processes. In containers and clusters none of our
processes may end others, and requests are refused with that reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matrixcommon.model.errors import Conflict, InvalidField, NotFound
from services.matrixctl.supervisor.state_folder import StateFolder
from services.node_agent.contract import ProcessFaultRequest, ProcessFaultView, ProcessView
from services.process_faults.process_faults import ProcessFaults

NOT_AVAILABLE = "process faults are not available here: they need a stack run by `matrixctl up` on one host"


class ProcessExecutor:
    """`state` is the folder of the process, `own_name` its name in the stack."""

    def __init__(self, state: Path, own_name: str) -> None:
        self._folder = StateFolder(state)
        self._own_name = own_name
        self._process_faults: ProcessFaults | None = None

    async def processes(self) -> list[ProcessView]:
        """The running services and their real state; empty if process faults are not available."""
        faults = self._faults()
        return [] if faults is None else [await self._view_of(faults, name) for name in await faults.services()]

    async def process(self, name: str) -> ProcessView:
        """One service, running or not. Raises NotFound if it is not a service of the stack."""
        faults, stack = self._faults(), self._folder.read()
        if faults is None or stack is None or name not in stack.children:
            raise NotFound(f"process {name[:80]!r} does not exist or cannot be given faults", field="name")
        return await self._view_of(faults, name)

    async def faults(self) -> list[ProcessFaultView]:
        """All faults not undone yet, including those of matrixctl and of a former process."""
        faults = self._faults()
        return [] if faults is None else [_view(name, *each) for name, each in faults.recorded().items()]

    async def fault(self, name: str) -> ProcessFaultView:
        found = next((each for each in await self.faults() if each.name == name), None)
        if found is None:
            raise NotFound(f"process fault {name[:80]!r} does not exist", field="name")
        return found

    async def inject(self, name: str, body: ProcessFaultRequest, validate_only: bool = False) -> ProcessFaultView:
        """Inject a fault; a repeated request has no effect and kills nothing twice. Raises InvalidField for a fault
        that cannot be injected."""
        faults = self._faults()
        if faults is None:
            raise InvalidField(NOT_AVAILABLE, field="kind")
        if body.target == self._own_name:
            raise InvalidField(
                f"{self._own_name} injects these faults itself, and could not undo one of its own", field="target"
            )
        if body.target not in await faults.services():
            running = ", ".join(await faults.services())
            raise InvalidField(f"{body.target!r} is not a running service; running are {running}", field="target")
        try:
            await faults.check(body.kind, body.target, body.parameters)
        except InvalidField as refused:
            refused.field = "kind" if refused.field == "fault" else refused.field
            raise
        current = faults.recorded().get(name)
        if current not in (None, (body.kind, body.target)):
            raise Conflict(f"fault {name!r} exists with other values: {' on '.join(current or ())}", field="name")
        if current is None and not validate_only:
            await faults.inject(name, body.kind, body.target, body.parameters)
        return _view(name, body.kind, body.target, body.parameters)

    async def clear(self, name: str) -> None:
        faults = self._faults()
        if faults is not None:
            await faults.clear(name)

    def _faults(self) -> ProcessFaults | None:
        """The process faults of the stack; None if they are not available."""
        stack = self._folder.read()
        if stack is None or stack.contained or self._folder.supervisor() is None:
            return None
        if self._process_faults is None:
            self._process_faults = ProcessFaults(self._folder, stack)
        return self._process_faults

    async def _view_of(self, faults: ProcessFaults, name: str) -> ProcessView:
        seen = await faults.observe(name)
        return ProcessView(name=name, state="Running" if seen["running"] else "Stopped", **seen)


def _view(name: str, kind: str, target: str, parameters: Mapping[str, str] | None = None) -> ProcessFaultView:
    return ProcessFaultView(name=name, kind=kind, target=target, parameters=dict(parameters or {}))

"""ProcessExecutor: who strikes the services of a stack when a scenario of MatrixCompute asks for it.

It is the process of the emulated nodes, which takes the faults of hardware too. Whether it can is not configured: it
can where the state folder that it runs in is a stack's, with a supervisor that starts again what ends. In containers
and in a cluster nobody of ours may end processes, and it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matrixcommon.model.errors import Conflict, InvalidField, NotFound
from services.matrixctl.supervisor.state_folder import Folder
from services.node_agent.contract import ProcessFaultRequest, ProcessFaultView, ProcessView
from services.process_faults.process_faults import ProcessFaults

NOT_HERE = "nothing strikes services here: only a stack that `matrixctl up` keeps on its own machine can be struck so"


class ProcessExecutor:
    """`state` is the folder of the process, `own` its name in the stack."""

    def __init__(self, state: Path, own: str) -> None:
        self._folder = Folder(state)
        self._own = own
        self._known: ProcessFaults | None = None

    async def processes(self) -> list[ProcessView]:
        """The services that run, as they truly are; none where none can be struck."""
        faults = self._faults()
        return [] if faults is None else [await self._seen(faults, name) for name in await faults.services()]

    async def process(self, name: str) -> ProcessView:
        """Also of one that does not run at this moment. Raises NotFound for what is none of the stack's."""
        faults, stack = self._faults(), self._folder.read()
        if faults is None or stack is None or name not in stack.children:
            raise NotFound(f"there is no process named {name[:80]!r} that could be struck", field="name")
        return await self._seen(faults, name)

    async def faults(self) -> list[ProcessFaultView]:
        """Those that are not undone, also of matrixctl, and of an earlier life."""
        faults = self._faults()
        return [] if faults is None else [_view(name, *each) for name, each in faults.written().items()]

    async def fault(self, name: str) -> ProcessFaultView:
        found = next((each for each in await self.faults() if each.name == name), None)
        if found is None:
            raise NotFound(f"there is no fault on a process named {name[:80]!r}", field="name")
        return found

    async def inject(self, name: str, body: ProcessFaultRequest, validate_only: bool = False) -> ProcessFaultView:
        """Asked again for the same it finds it, and kills nobody twice. Raises InvalidField for what cannot be done."""
        faults = self._faults()
        if faults is None:
            raise InvalidField(NOT_HERE, field="kind")
        if body.target == self._own:
            raise InvalidField(
                f"{self._own} is who carries these faults out: struck, it could not undo any", field="target"
            )
        if body.target not in await faults.services():
            raise InvalidField(f"no {body.target!r} runs here; {', '.join(await faults.services())} do", field="target")
        try:
            await faults.check(body.kind, body.target, body.parameters)
        except InvalidField as refused:
            refused.field = "kind" if refused.field == "fault" else refused.field
            raise
        current = faults.written().get(name)
        if current not in (None, (body.kind, body.target)):
            raise Conflict(f"fault {name!r} is another one: {' on '.join(current or ())}", field="name")
        if current is None and not validate_only:
            await faults.inject(name, body.kind, body.target, body.parameters)
        return _view(name, body.kind, body.target, body.parameters)

    async def clear(self, name: str) -> None:
        faults = self._faults()
        if faults is not None:
            await faults.clear(name)

    def _faults(self) -> ProcessFaults | None:
        """None where no services can be struck."""
        stack = self._folder.read()
        if stack is None or stack.contained or self._folder.supervisor() is None:
            return None
        if self._known is None:
            self._known = ProcessFaults(self._folder, stack)
        return self._known

    async def _seen(self, faults: ProcessFaults, name: str) -> ProcessView:
        seen = await faults.seen(name)
        return ProcessView(name=name, state="Running" if seen["running"] else "Stopped", **seen)


def _view(name: str, kind: str, target: str, parameters: Mapping[str, str] | None = None) -> ProcessFaultView:
    return ProcessFaultView(name=name, kind=kind, target=target, parameters=dict(parameters or {}))

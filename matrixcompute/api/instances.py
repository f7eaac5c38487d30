"""MatrixCompute over HTTP: instances, operations, events, and the faults it has found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from matrixcommon.api.authorization import CallerOf
from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, list_or_watch, page
from matrixcommon.api.mutations import Mutations
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, NotYetSupported
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import from_timestamp
from matrixcommon.model.resource_key import resolve
from matrixcommon.persistence.database_session import find
from matrixcompute.access import NOT_YET, VERBS_NOT_YET
from matrixcompute.contract import DetectedFault, InstanceRequest, InstanceView
from matrixcompute.instances.service import Conductor
from matrixcompute.model.states import INSTANCE_STATES
from matrixcompute.operations.saga import SagaRunner
from matrixcompute.recovery.policy import broken_members
from matrixcompute.store.store import OPEN, ComputeStore, InstanceRow, SagaRow
from matrixresource.contract.allocations import MemberView, PlacementPolicy, RenewRequest

Leaving = Annotated[
    Sequence[NodeName], Query(max_length=1024, description="where it shrinks: the members that go, drained before")
]


def routes(
    store: ComputeStore, conductor: Conductor, runner: SagaRunner, clock: Clock, wake: Callable[[], None]
) -> APIRouter:
    api = APIRouter(prefix="/v1")
    change = Mutations(store.records).run

    def instances() -> list[InstanceView]:
        with store.reading() as session:
            return [row.view() for row in store.instances(session)]

    @api.get("/instances")
    async def list_instances(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "instance", instances)

    @api.get("/instances/{name}")
    async def get_instance(name: str) -> InstanceView:
        with store.reading() as session:
            return store.instance(session, name).view()

    @api.put("/instances/{name}", status_code=202)
    async def ensure_instance(
        name: str,
        body: InstanceRequest,
        caller: CallerOf,
        leaving: Leaving = (),
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> InstanceView:
        key, request = caller.claim(name, body)
        for spec in (request.affinity, request.anti_affinity):
            for other in spec.instances if spec is not None else ():
                caller.check(resolve(other, request.project), other)
        return await conductor.ensure(key, request, leaving=leaving, if_match=if_match, validate_only=validate_only)

    @api.delete("/instances/{name}", status_code=202)
    async def delete_instance(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> InstanceView:
        return await change(lambda: conductor.delete(name, if_match=if_match), validate_only=validate_only)

    @api.post("/instances/{name}:retry", status_code=202)
    async def retry(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> InstanceView:
        return await change(
            lambda: conductor.retry(name), validate_only=validate_only, row=(InstanceRow, name), if_match=if_match
        )

    @api.post("/instances/{name}:resize", status_code=202)
    async def resize(
        name: str,
        nodes: Annotated[int, Query(ge=1, le=49152)],
        leaving: Leaving = (),
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> InstanceView:
        shape = _shape(name).model_copy(update={"nodes": nodes})
        return await conductor.ensure(name, shape, leaving=leaving, if_match=if_match, validate_only=validate_only)

    @api.post("/instances/{name}:move", status_code=202)
    async def move(
        name: str, body: PlacementPolicy, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> InstanceView:
        """Another placement for the same shape; with `validateOnly` the view's members are where it would lie."""
        shape = _shape(name).model_copy(update={"placement": body})
        return await conductor.ensure(name, shape, if_match=if_match, validate_only=validate_only)

    @api.post("/instances/{name}:renew", status_code=202)
    async def renew(
        name: str, body: RenewRequest, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> InstanceView:
        """Let its lease start again, for this long; the spec stays as it is."""
        return await conductor.renew(name, body.lease_s, if_match=if_match, validate_only=validate_only)

    def _shape(name: str) -> InstanceRequest:
        with store.reading() as session:
            return store.instance(session, name).shape

    def verb_not_yet(verb: str) -> None:
        @api.post(f"/instances/{{name}}:{verb}", include_in_schema=False)
        async def refuse(name: str) -> None:
            raise NotYetSupported(f":{verb} is in the contract and not in this version")

    for verb in VERBS_NOT_YET:
        verb_not_yet(verb)

    # -- operations ----------------------------------------------------------------------------------------------

    def operations() -> list[Any]:
        with store.reading() as session:
            return [row.view() for row in store.sagas(session)]

    @api.get("/operations")
    async def list_operations(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "operation", operations)

    @api.get("/operations/{name}")
    async def get_operation(name: str) -> JSONResponse:
        with store.reading() as session:
            return JSONResponse(find(session, SagaRow, name).view().wire())

    @api.post("/operations/{name}:wait")
    async def wait(
        name: str, timeout_s: Annotated[float, Query(alias="timeoutSeconds", gt=0, le=60)] = 30
    ) -> JSONResponse:
        """The operation once it is done, or as it is after that many seconds of the wall."""
        left_s = timeout_s
        while True:
            with store.reading() as session:
                row = find(session, SagaRow, name)
                if row.status not in OPEN or left_s <= 0:
                    return JSONResponse(row.view().wire())
            await store.records.changed(within_wall_s=min(1.0, left_s))
            left_s -= 1.0 if left_s > 1.0 else left_s

    @api.post("/operations/{name}:cancel")
    async def cancel(name: str) -> JSONResponse:
        """Operations converge on the spec, so what ends one is another spec: this says which."""
        with store.reading() as session:
            row = find(session, SagaRow, name)
            raise Conflict(
                f"{row.verb} is {row.status} and cannot be cancelled; delete the instance or give it another shape"
            )

    # -- what happened -------------------------------------------------------------------------------------------

    @api.get("/events")
    async def list_events(request: Request, params: Params) -> Response:
        def events() -> list[Any]:
            with store.reading() as session:
                return [row.view() for row in store.events(session)]

        params.order_by = params.order_by or "at"
        return list_or_watch(request, params, store.records, "event", events)

    @api.get("/faults")
    async def list_faults(params: Params) -> Response:
        found = []
        for instance in instances():
            for member, reason in broken_members([MemberView.model_validate(m) for m in instance.members]):
                action = "replace" if instance.state == "Repairing" else "pending"
                detail = {"agent": member.agent, "health": member.health, "role": member.role}
                fault = DetectedFault(
                    name=f"{instance.name}.{member.node}",
                    project=instance.project,
                    instance=instance.name,
                    node=member.node,
                    reason=reason,
                    action=action,
                    detail=detail,
                )
                found.append(fault.wire())
        return JSONResponse(page(found, params) | {"resourceVersion": store.records.latest()})

    @api.get("/stuck")
    async def list_stuck(params: Params) -> Response:
        """Instances that have been in a passing state for longer than its deadline."""
        stuck = []
        for view in instances():
            progressing = next((c for c in view.conditions if c.type == "Progressing"), None)
            since = from_timestamp(progressing.last_transition_time) if progressing is not None else clock.now()
            if INSTANCE_STATES.stuck(view.state, since, clock.now()):
                stuck.append(
                    {
                        "name": view.name,
                        "project": view.project,
                        "state": view.state,
                        "seconds": round(clock.now() - since, 1),
                    }
                )
        return JSONResponse(page(stuck, params) | {"resourceVersion": store.records.latest()})

    def not_yet(noun: str) -> None:
        @api.api_route(f"/{noun}", methods=["GET", "POST"], include_in_schema=False)
        @api.api_route(f"/{noun}/{{name}}", methods=["GET", "PUT", "POST", "DELETE"], include_in_schema=False)
        async def refuse(name: str = "") -> None:
            raise NotYetSupported(
                f"{noun} are in the contract and not in this version; the README lists what is not yet there"
            )

    for noun in NOT_YET:
        not_yet(noun)
    return api

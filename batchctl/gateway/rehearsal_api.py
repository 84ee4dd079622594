"""`/rehearsal`: what a real provider does not have. The clock, the faults, the ledger, and who answers."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from batchctl.gateway.faults import FaultPlan
from batchctl.gateway.gateway import Gateway
from batchctl.gateway.ledger import ledger
from batchctl.gateway.wire import WireError

Model = TypeVar("Model", bound=BaseModel)


class _ClockChange(BaseModel):
    """`advance` in seconds of the server's clock."""

    model_config = ConfigDict(extra="forbid")

    speed: float | None = None
    advance: float = 0.0


def _parsed(model: type[Model], raw: bytes) -> Model:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise WireError(400, str(error)) from error


def routes(gateway: Gateway) -> list[Route]:
    """The routes of the rehearsal; they need no key and no fault strikes them."""

    async def show_clock(_: Request) -> Response:
        return JSONResponse({"now": gateway.clock.now(), "speed": gateway.clock.speed})

    async def set_clock(request: Request) -> Response:
        change = _parsed(_ClockChange, await request.body())
        try:
            gateway.clock.set(speed=change.speed, advance=change.advance)
        except ValueError as error:
            raise WireError(400, str(error)) from error
        await run_in_threadpool(gateway.save)
        await run_in_threadpool(gateway.runner.settle)
        return await show_clock(request)

    async def show_faults(_: Request) -> Response:
        return JSONResponse(gateway.schedule.report())

    async def set_faults(request: Request) -> Response:
        plan = _parsed(FaultPlan, await request.body())
        await run_in_threadpool(gateway.install, plan)
        return await show_faults(request)

    async def show_ledger(request: Request) -> Response:
        await run_in_threadpool(gateway.save)
        bodies = request.query_params.get("summary") not in ("1", "true")
        report: dict[str, Any] = await run_in_threadpool(ledger, gateway.state.database, bodies=bodies)
        return Response(orjson.dumps(report), media_type="application/json")

    async def show_info(_: Request) -> Response:
        return JSONResponse({"executor": gateway.executor.describe(), "state": str(gateway.state.directory)})

    return [
        Route("/rehearsal", show_info, methods=["GET"]),
        Route("/rehearsal/clock", show_clock, methods=["GET"]),
        Route("/rehearsal/clock", set_clock, methods=["POST"]),
        Route("/rehearsal/faults", show_faults, methods=["GET"]),
        Route("/rehearsal/faults", set_faults, methods=["POST"]),
        Route("/rehearsal/ledger", show_ledger, methods=["GET"]),
    ]

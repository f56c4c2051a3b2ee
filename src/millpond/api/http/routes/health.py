"""GET /health, /health/ready, /health/live and /metrics: how this broker is, for those who look after it."""

import asyncio

import msgspec
from msgspec import Struct

from millpond.api.http.replies import JSON, Reply
from millpond.api.http.routing import Call, Route
from millpond.broker.operations.health import why_not_ready
from millpond.telemetry.exposition import CONTENT_TYPE


class Health(Struct):
    live: bool
    ready: bool
    why_not: list[str]
    """One sentence for each reason."""


class Live(Struct):
    live: bool = True


async def health(call: Call) -> Reply:
    reasons = why_not_ready(call.services.node)
    body = msgspec.json.encode(Health(live=True, ready=not reasons, why_not=reasons))
    return Reply(503 if reasons else 200, JSON, body + b"\n")


async def ready(call: Call) -> Reply:
    """The same, under the name that those look for who know /health/live."""
    return await health(call)


async def live(call: Call) -> Live:
    return Live()


async def metrics(call: Call) -> Reply:
    measured = await call.services.meter.measure()
    body = await asyncio.get_running_loop().run_in_executor(None, measured.render)
    return Reply(200, CONTENT_TYPE, body)


_SUMMARY = "Whether this broker can serve everything it has, and why not"

ROUTES = (
    Route(method="GET", path="/health", summary=_SUMMARY, handler=health, answer=Health, also={503: Health}),
    Route(method="GET", path="/health/ready", summary=_SUMMARY, handler=ready, answer=Health, also={503: Health}),
    Route(method="GET", path="/health/live", summary="Whether the process answers", handler=live, answer=Live),
    Route(method="GET", path="/metrics", summary="Prometheus' metrics", handler=metrics, gives=(CONTENT_TYPE,)),
)

"""GET /docs and /openapi.json: what this door offers, to read and to try, without anything from elsewhere."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from millpond.api.http.replies import JSON, Reply
from millpond.api.http.routing import Call, Route

if TYPE_CHECKING:
    from millpond.api.http.openapi import OpenApi

HTML = "text/html; charset=utf-8"
PAGE = "docs.html"


def routes(described: "OpenApi") -> Sequence[Route]:
    @cache
    def document() -> bytes:
        return msgspec.json.encode(described.document())

    async def openapi(call: Call) -> Reply:
        return Reply(200, JSON, document())

    return (
        Route(method="GET", path="/openapi.json", summary="This, for machines", handler=openapi),
        Route(method="GET", path="/docs", summary="This, for people", handler=docs, gives=(HTML,)),
        Route(method="GET", path="/", summary="The way to the documents", handler=home),
    )


@cache
def _page() -> bytes:
    return files("millpond.api.http").joinpath(PAGE).read_bytes()


async def docs(call: Call) -> Reply:
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
    return Reply(200, HTML, _page(), headers=(("content-security-policy", policy),))


async def home(call: Call) -> Reply:
    return Reply(307, HTML, headers=(("location", "/docs"),))

"""Asks the HTTP door, as a program without any library of ours would."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

SECONDS_MAX = 30
JSON = "application/json"
AS_JSON = "application/vnd.millpond.json+json"
AS_BINARY = "application/vnd.millpond.binary+json"


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self.body
        assert self.json["status"] == self.status
        assert self.json["detail"]
        code: str = self.json["code"]
        return code


class Door:
    def __init__(self, port: int | None) -> None:
        assert port is not None, "start the broker with http=True"
        self.port = port

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str | None = JSON,
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """A body that is bytes goes as it is, any other as JSON."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        head = dict(headers or {})
        if content is not None and content_type is not None:
            head["content-type"] = content_type
        if accept is not None:
            head["accept"] = accept
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, content, head)
            response = connection.getresponse()
            return Answered(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str, *, accept: str | None = None) -> Answered:
        return self.ask("GET", path, accept=accept)

    def post(self, path: str, body: object, *, content_type: str | None = JSON) -> Answered:
        return self.ask("POST", path, body, content_type=content_type)

    def done(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """What was answered, where it was what was asked for."""
        answered = self.ask(method, path, body)
        assert answered.status in (200, 201), answered
        return answered.json

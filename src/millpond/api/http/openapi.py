"""OpenAPI 3.1, written from the routes, the types they take and give, and what stands below the fields of these.

Driven by the route that shows it.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from millpond import __version__
from millpond.api.http.forms import INT32_MAX, INT64_MAX
from millpond.api.http.notes import notes_of, structs_in
from millpond.api.http.problems import PROBLEM_JSON, Problem
from millpond.api.http.replies import JSON
from millpond.api.http.routing import Route

_IN_PATHS: Final[dict[str, dict[str, Any]]] = {
    "topic": {"type": "string", "minLength": 1, "examples": ["orders"]},
    "group": {"type": "string", "minLength": 1, "examples": ["kitchen"]},
    "partition": {"type": "integer", "minimum": 0, "maximum": INT32_MAX, "examples": [0]},
    "offset": {"type": "integer", "minimum": 0, "maximum": INT64_MAX, "examples": [42]},
}
_REFERENCE: Final = "#/components/schemas/{name}"
_SECTIONS: Final = {
    "Messages": ("produce", "consume", "tail"),
    "Members of groups": ("subscribe",),
    "Topics": ("topics",),
    "Groups": ("groups",),
    "Queues": ("queues", "dead_letters"),
    "Delays": ("delays",),
    "The cluster": ("cluster", "health"),
}
"""By the modules of the routes."""
_SECTION_OF: Final = {module: section for section, modules in _SECTIONS.items() for module in modules}


class OpenApi:
    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes

    def document(self) -> dict[str, Any]:
        kinds = [kind for route in self._routes for kind in (route.body, route.answer, *route.also.values()) if kind]
        queries = [route.query for route in self._routes if route.query is not None]
        schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template=_REFERENCE)
        by_kind = {id(kind): schema for kind, schema in zip([*kinds, Problem], schemas, strict=True)}
        asked = {query: msgspec.json.schema(query)["$defs"][query.__name__] for query in queries}
        for kind in [*kinds, *queries, Problem]:
            for struct in structs_in(kind):
                _annotate(asked[struct] if struct in asked else components[struct.__name__], struct)
        paths: dict[str, dict[str, Any]] = {}
        for route in self._routes:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind, asked)
        return {
            "openapi": "3.1.0",
            "info": {"title": "Millpond", "version": __version__},
            "tags": [{"name": section} for section in _SECTIONS],
            "paths": paths,
            "components": {"schemas": components},
        }


def _annotate(schema: dict[str, Any], struct: type) -> None:
    for name, note in notes_of(struct).items():
        schema["properties"][name]["description"] = note


def _operation(route: Route, schemas: dict[int, Any], asked: dict[Any, Any]) -> dict[str, Any]:
    function = route.handler or route.quick
    assert function is not None
    module = function.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{module}_{function.__name__}",
        "tags": [_SECTION_OF[module]],
        "summary": route.summary,
        "responses": _responses(route, schemas),
    }
    parameters = [_path_parameter(name) for name in re.findall(r"\{(\w+)\}", route.path)]
    if route.query is not None:
        parameters += _query_parameters(asked[route.query])
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content = {media_type: {"schema": schemas[id(route.body)]} for media_type in route.takes}
        operation["requestBody"] = {"required": route.needs_body, "content": content}
    return operation


def _responses(route: Route, schemas: dict[int, Any]) -> dict[str, Any]:
    schema = {} if route.answer is None else {"schema": schemas[id(route.answer)]}
    refused = {"content": {PROBLEM_JSON: {"schema": schemas[id(Problem)]}}}
    further = {
        str(status): {"description": "Also", "content": {JSON: {"schema": schemas[id(kind)]}}}
        for status, kind in route.also.items()
    }
    return {
        str(route.status): {"description": "Done", "content": dict.fromkeys(route.gives, schema)},
        **further,
        "4XX": {"description": "The request is refused: `code` and `detail` say why", **refused},
        "5XX": {"description": "Not now: `code` and `detail` say why", **refused},
    }


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _IN_PATHS[name]}


def _query_parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null(field),
            **({"description": field["description"]} if "description" in field else {}),
        }
        for name, field in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be left out of a query is never null there."""
    choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(choices) == 1:
        return choices[0]  # type: ignore[no-any-return]
    return schema

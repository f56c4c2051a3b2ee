"""What an answer must be: of the request it stands for, whole, and without an error that Kafka would not give. Pure."""

from typing import Any

from millpond.api.kafka.served import SERVED
from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fields import Kind, fields_of
from millpond.protocol.messages.headers import parse_response_header, response_header_version
from tests.fuzz.foresight import Foreseen

UNKNOWN_SERVER_ERROR = -1
KAFKA_STORAGE_ERROR = 56
ERROR_CODE_MAX = 133
"""The last that Kafka 4.1 knows."""


class Finding(Exception):
    """The broker did what it must not."""


def checked_answer(answer: bytes, asked: Foreseen) -> Any:  # noqa: ANN401 - any response
    api = SERVED[asked.key]
    view = memoryview(answer)
    try:
        header_version = response_header_version(asked.key, asked.version)
        correlation_id, position = parse_response_header(view, header_version=header_version)
        if correlation_id != asked.correlation_id:
            raise Finding(f"{api.name} v{asked.version}: asked as {asked.correlation_id}, answered as {correlation_id}")
        response, end = decode(api.response_class, view, asked.version, position)
    except MalformedMessage as error:
        raise Finding(
            f"the answer to {api.name} v{asked.version} is malformed: {error}; {answer[:200].hex()}"
        ) from None
    if end != len(answer):
        raise Finding(f"{len(answer) - end} bytes behind the answer to {api.name} v{asked.version}")
    for code in error_codes(response):
        if code in (UNKNOWN_SERVER_ERROR, KAFKA_STORAGE_ERROR) or not 0 <= code <= ERROR_CODE_MAX:
            finding = Finding(f"{api.name} is answered with error {code}")
            finding.add_note(f"v{asked.version}: {str(response)[:2000]}")
            raise finding
    return response


def error_codes(value: Any) -> list[int]:  # noqa: ANN401 - a response or a part of one
    own, inner = _names(type(value))
    codes: list[int] = [getattr(value, name) for name in own]
    for name in inner:
        part = getattr(value, name)
        if isinstance(part, list):
            for each in part:
                codes += error_codes(each)
        elif part is not None:
            codes += error_codes(part)
    return codes


_known_names: dict[type[Any], tuple[list[str], list[str]]] = {}


def _names(declared: type[Any]) -> tuple[list[str], list[str]]:
    """The fields that are error codes, and those that may have some inside."""
    if declared not in _known_names:
        fields = fields_of(declared)
        own = [field.name for field in fields if field.name.endswith("error_code")]
        _known_names[declared] = own, [field.name for field in fields if field.kind is Kind.STRUCT]
    return _known_names[declared]

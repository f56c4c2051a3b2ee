"""What commands print for programs: JSON and YAML say the same."""

import json

from millpond.cli.documents import as_json, as_yaml

DOCUMENT = {
    "name": "yes: no",
    "leader": None,
    "voters": [{"id": 1, "lag": 0}, {"id": 2, "places": [{"host": "a"}]}],
    "numbers": [1, 2],
    "nothing": [],
    "inner": {"deep": {"text": "1"}},
}


def test_json_is_json() -> None:
    assert json.loads(as_json(DOCUMENT)) == DOCUMENT


def test_yaml_is_of_the_plain_kind() -> None:
    assert as_yaml(DOCUMENT).splitlines() == [
        'name: "yes: no"',
        "leader: null",
        "voters:",
        "  - id: 1",
        "    lag: 0",
        "  - id: 2",
        "    places:",
        '      - host: "a"',
        "numbers: [1, 2]",
        "nothing: []",
        "inner:",
        "  deep:",
        '    text: "1"',
    ]

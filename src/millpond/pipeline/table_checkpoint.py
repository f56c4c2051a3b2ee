"""What a table's log says up to a version, as one Parquet file: a Delta checkpoint, so that nobody reads every commit.

    <table>/_delta_log/00000000000000000100.checkpoint.parquet    a row an action, in the column of its kind
        protocol, metaData, txn, add, remove                      as they are in commits
        metaData.configuration["millpond.note"]                   the note, and what each app added last, as JSON: ours
    <table>/_delta_log/_last_checkpoint                           {"version": 100, "size": 1234}

Invariant: a checkpoint is an abridgement; whatever is wrong with it, the commits are read instead.
Pure, but for the two files. Driven by table.py.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.pipeline.storage import Storage

LOG: Final = "_delta_log"
LAST: Final = f"{LOG}/_last_checkpoint"
NOTE: Final = "millpond.note"
_TEXTS: Final = pa.map_(pa.string(), pa.string())
SCHEMA: Final = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _TEXTS,
            }
        ),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)
_MAPS: Final = {"partitionValues", "tags", "options", "configuration"}
Action = dict[str, Any]


def write_checkpoint(storage: Storage, version: int, actions: Iterable[Action], ours: Action) -> None:
    """Of a state that is given as the actions that make it."""
    rows = [_with_note(action, ours) if "metaData" in action else action for action in actions]
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([_pairs(row) for row in rows], schema=SCHEMA), out, compression="zstd")
    storage.replace(_path(version), out.getvalue().to_pybytes())
    storage.replace(LAST, json.dumps({"version": version, "size": len(rows)}).encode())


def read_checkpoint(storage: Storage) -> tuple[int, list[Action], Action] | None:
    """Its version, its actions, and what is ours; None where there is none that can be read."""
    try:
        version = int(json.loads(storage.read(LAST))["version"])
        rows = pq.read_table(storage.parquet(_path(version))).to_pylist(maps_as_pydicts="strict")
        actions = [{name: each for name, each in row.items() if each is not None} for row in rows]
        (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
        return version, actions, json.loads(metadata["configuration"].pop(NOTE))
    except (OSError, ValueError, KeyError, pa.ArrowInvalid):
        return None


def _path(version: int) -> str:
    return f"{LOG}/{version:020}.checkpoint.parquet"


def _with_note(action: Action, ours: Action) -> Action:
    metadata = action["metaData"]
    return {"metaData": metadata | {"configuration": metadata["configuration"] | {NOTE: json.dumps(ours)}}}


def _pairs(value: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON
    """Maps as Arrow takes them."""
    if name in _MAPS:
        return list(value.items())
    return {key: _pairs(each, key) for key, each in value.items()} if isinstance(value, dict) else value

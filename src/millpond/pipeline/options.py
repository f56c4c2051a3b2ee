"""The options of `format("millpond")`, named as Spark's kafka source and sink name theirs where they mean the same.

Invariant: an option that is not known, or means nothing where it is given, is refused with what to write instead;
nothing is ignored but what is Spark's own, or only tunes another client (IGNORED).
Pure. Driven by source.py and sink.py. `GUIDE` is what the table in docs/guides/spark.md is made from.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from millpond.client.addresses import parse_addresses
from millpond.client.settings import ClientSettings
from millpond.model.errors import InvalidSetting
from millpond.model.ids import TopicPartition
from millpond.model.limits import MIB
from millpond.pipeline.columns import DEFAULT, TYPES
from millpond.pipeline.positions import (
    EARLIEST,
    LATEST,
    Position,
    parse_assignment,
    parse_offsets,
    parse_time,
    parse_times,
)
from millpond.pipeline.tokens import Commit
from millpond.protocol.compression import Codec

GUIDE: Final = {
    "kafka.bootstrap.servers": ("", "brokers, as host:port,host:port; `bootstrap.servers` does as well"),
    "subscribe": ("", "topics to read, with commas between"),
    "subscribePattern": ("", "a regular expression that a topic's whole name matches"),
    "assign": ("", 'partitions to read, as JSON: `{"orders": [0, 1]}`'),
    "startingOffsets": ("earliest, of a stream latest", "`earliest`, `latest`, or JSON by partition"),
    "startingTimestamp": ("", "begin with the first message not older than this, in milliseconds"),
    "startingOffsetsByTimestamp": ("", "the same as JSON, by partition"),
    "startingOffsetsByTimestampStrategy": ("latest", "where no message is that young: `latest`, or `error`"),
    "endingOffsets": ("latest", "of a batch read: before these; `latest`, or JSON by partition"),
    "endingTimestamp": ("", "of a batch read: before the first message not older than this"),
    "endingOffsetsByTimestamp": ("", "the same as JSON, by partition"),
    "failOnDataLoss": ("true", "stop where messages are gone before they were read; `false` goes on"),
    "minPartitions": ("", "at least so many Spark partitions; large ranges are split"),
    "maxRecordsPerPartition": ("1000000", "a range of more offsets than this is split"),
    "minRecordsPerPartition": ("1000", "of a stream: one task reads several ranges, up to so many offsets; 1: never"),
    "includeHeaders": ("false", "a column `headers`"),
    "columns": ("all but headers", "only these columns, with commas between: what is not read costs nothing"),
    "value.format": ("raw", "`json` reads values into a typed column; what is not JSON goes to a column `malformed`"),
    "value.schema": ("", "of `json` values, as Spark writes types: `client string, value double`"),
    "maxOffsetsPerTrigger": ("", "of a stream: at most so many offsets in a micro-batch"),
    "maxBytesPerTrigger": ("", "of a stream: about so many bytes on the wire, judged by a sample of each partition"),
    "kafka.group.id": ("", "a stream's progress is committed under this group, so that lag tools see it"),
    "kafka.client.id": ("millpond-spark", "as what the broker knows this reader or writer"),
    "fetchBytes": ("4194304", "bytes asked for in one fetch"),
    "topic": ("", "of a writer: where everything goes; without it there is a column `topic`"),
    "kafka.compression.type": ("none", "of a writer: `none`, `gzip`, `snappy`, `lz4` or `zstd`"),
    "kafka.batch.size": ("524288", "of a writer: bytes in one record batch, before compression"),
    "delivery": ("of a stream exactly-once", "of a writer: `exactly-once`, or `at-least-once`"),
    "commit.name": ("", "of a batch write that is to happen once: what it is called, the same on every try"),
    "commit.number": ("0", "of such writes of one name: its number; numbers go up"),
}  # fmt: skip
"""By name: the default, and what it means."""

IGNORED: Final = frozenset(
    {"kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix"}
    | {"path", "checkpointlocation", "queryname"}
)

_READING: Final = frozenset(
    {"subscribe", "subscribepattern", "assign", "startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}
    | {"startingoffsetsbytimestampstrategy", "endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"}
    | {"failondataloss", "minpartitions", "maxrecordsperpartition", "minrecordsperpartition", "includeheaders"}
    | {"columns", "fetchbytes"}
    | {"value.format", "value.schema", "maxoffsetspertrigger", "maxbytespertrigger", "kafka.group.id"}
)
_BATCH_ONLY: Final = frozenset({"endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"})
_WRITING: Final = frozenset(
    {"topic", "kafka.compression.type", "kafka.batch.size", "delivery", "commit.name", "commit.number"}
)
_EVERYWHERE: Final = frozenset({"kafka.bootstrap.servers", "bootstrap.servers", "kafka.client.id"})
_SPELLED: Final = {name.lower(): name for name in GUIDE}

CLIENT_ID: Final = "millpond-spark"
Kind = Literal["batch", "stream", "writer"]


@dataclass(frozen=True, slots=True)
class Connection:
    """How brokers are reached; small, and sent to every task."""

    bootstrap: str
    client_id: str = CLIENT_ID

    def settings(self) -> ClientSettings:
        return ClientSettings.of(self.bootstrap, {"client_id": self.client_id})


@dataclass(frozen=True, slots=True)
class ReadOptions:
    connection: Connection
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    starting: Position
    ending: Position
    must_have_young: bool
    """Where no message is as young as the starting time, that is an error."""
    fail_on_data_loss: bool
    partitions_min: int | None
    records_per_partition_max: int
    records_per_partition_min: int
    columns: tuple[str, ...]
    value_schema: str | None
    """Of JSON; None where values stay bytes."""
    fetch_bytes: int
    offsets_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    group: str | None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: Connection
    topic: str | None
    codec: Codec
    batch_bytes: int
    exactly_once: bool
    commit: Commit | None
    """Of a batch write that is to happen once; a stream's has the numbers of its micro-batches."""


def read_options(given: Mapping[str, str], kind: Kind) -> ReadOptions:
    options = _checked(given, kind)
    ways = [name for name in ("subscribe", "subscribepattern", "assign") if name in options]
    if len(ways) != 1:
        said = " and ".join(_SPELLED[name] for name in ways) or "none of them"
        raise InvalidSetting(
            f"{said} is given; say what to read with exactly one of subscribe (topics with commas between), "
            "subscribePattern (a regular expression) or assign (partitions as JSON)"
        )
    topics = tuple(each.strip() for each in options.get("subscribe", "").split(",") if each.strip())
    if "subscribe" in options and not topics:
        raise InvalidSetting("subscribe is empty; it is topics with commas between")
    strategy = options.get("startingoffsetsbytimestampstrategy", "latest")
    if strategy not in ("latest", "error"):
        raise InvalidSetting(f"startingOffsetsByTimestampStrategy is {strategy!r}; it is latest or error")
    return ReadOptions(
        connection=_connection(options),
        topics=topics,
        pattern=_pattern(options.get("subscribepattern")),
        assigned=parse_assignment("assign", options["assign"]) if "assign" in options else (),
        starting=_starting(options, kind),
        ending=_ending(options),
        must_have_young=strategy == "error",
        fail_on_data_loss=_truth(options, "failondataloss", default=True),
        partitions_min=_number(options, "minpartitions"),
        records_per_partition_max=_number(options, "maxrecordsperpartition") or 1_000_000,
        records_per_partition_min=_number(options, "minrecordsperpartition") or 1_000,
        columns=_columns(options),
        value_schema=_value_schema(options),
        fetch_bytes=_number(options, "fetchbytes") or 4 * MIB,
        offsets_per_trigger_max=_number(options, "maxoffsetspertrigger"),
        bytes_per_trigger_max=_number(options, "maxbytespertrigger"),
        group=options.get("kafka.group.id"),
    )


def write_options(given: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    options = _checked(given, "writer")
    exactly_once, commit = _delivery(options, is_stream)
    codec = options.get("kafka.compression.type", "none").upper()
    if codec not in Codec.__members__:
        raise InvalidSetting(
            f"kafka.compression.type is {options['kafka.compression.type']!r}; it is none, gzip, snappy, lz4 or zstd"
        )
    return WriteOptions(
        connection=_connection(options),
        topic=options.get("topic"),
        codec=Codec[codec],
        batch_bytes=_number(options, "kafka.batch.size") or MIB // 2,
        exactly_once=exactly_once,
        commit=commit,
    )


def _delivery(options: Mapping[str, str], is_stream: bool) -> tuple[bool, Commit | None]:
    name, number = options.get("commit.name"), options.get("commit.number", "0").strip()
    said = options.get("delivery", "exactly-once" if is_stream or name is not None else "at-least-once")
    if said not in ("exactly-once", "at-least-once"):
        raise InvalidSetting(f"delivery is {said!r}; it is exactly-once or at-least-once")
    if is_stream and (name is not None or "commit.number" in options):
        raise InvalidSetting("commit.name and commit.number are of batch writes; a stream's writes have numbers")
    if not number.isdecimal():
        raise InvalidSetting(f"commit.number is {number!r}; it is a whole number, and goes up from write to write")
    if not is_stream and (said == "exactly-once") != (name is not None):
        raise InvalidSetting(
            "a batch write happens exactly once where it is named: set commit.name to what it is called on every try, "
            "and commit.number to its number where there are several; or leave delivery at at-least-once"
        )
    return said == "exactly-once", None if name is None else Commit(name, int(number))


def _checked(given: Mapping[str, str], kind: Kind) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    meant = _EVERYWHERE | (_WRITING if kind == "writer" else _READING)
    if kind == "stream":
        meant -= _BATCH_ONLY
    for name in options.keys() - IGNORED - meant:
        if name in _SPELLED:
            where = {"batch": "a batch read", "stream": "a stream", "writer": "a writer"}[kind]
            raise InvalidSetting(f"{_SPELLED[name]} means nothing to {where}; leave it out")
        near = difflib.get_close_matches(name, _SPELLED, n=1)
        hint = f"did you mean {_SPELLED[near[0]]}?" if near else f"there are: {', '.join(GUIDE)}"
        raise InvalidSetting(f"option {name!r} is not known; {hint}")
    return options


def _connection(options: Mapping[str, str]) -> Connection:
    bootstrap = options.get("kafka.bootstrap.servers", options.get("bootstrap.servers"))
    if bootstrap is None:
        raise InvalidSetting('kafka.bootstrap.servers is missing; name a broker, such as "localhost:9092"')
    parse_addresses(bootstrap)
    return Connection(bootstrap, options.get("kafka.client.id", CLIENT_ID))


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidSetting(f"subscribePattern is {text!r}, which is no regular expression: {error}") from None
    return text


def _starting(options: Mapping[str, str], kind: Kind) -> Position:
    """A time counts before times by partition, and those before offsets, as in Spark's kafka source."""
    if "startingtimestamp" in options:
        return parse_time("startingTimestamp", options["startingtimestamp"])
    if "startingoffsetsbytimestamp" in options:
        return parse_times("startingOffsetsByTimestamp", options["startingoffsetsbytimestamp"])
    if "startingoffsets" in options:
        allowed = ("earliest", "latest") if kind == "stream" else ("earliest",)
        return parse_offsets("startingOffsets", options["startingoffsets"], allowed=allowed)
    return Position(LATEST if kind == "stream" else EARLIEST)


def _ending(options: Mapping[str, str]) -> Position:
    if "endingtimestamp" in options:
        return parse_time("endingTimestamp", options["endingtimestamp"])
    if "endingoffsetsbytimestamp" in options:
        return parse_times("endingOffsetsByTimestamp", options["endingoffsetsbytimestamp"])
    if "endingoffsets" in options:
        return parse_offsets("endingOffsets", options["endingoffsets"], allowed=("latest",))
    return Position(LATEST)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    if "columns" not in options:
        return tuple(TYPES) if _truth(options, "includeheaders", default=False) else DEFAULT
    by_name = {name.lower(): name for name in TYPES}
    asked = [each.strip().lower() for each in options["columns"].split(",") if each.strip()]
    if not asked or any(each not in by_name for each in asked) or len(set(asked)) != len(asked):
        raise InvalidSetting(f"columns is {options['columns']!r}; it is some of {', '.join(TYPES)}, each once")
    return tuple(by_name[each] for each in asked)


def _value_schema(options: Mapping[str, str]) -> str | None:
    form, schema = options.get("value.format", "raw").strip().lower(), options.get("value.schema")
    if form not in ("raw", "json"):
        raise InvalidSetting(f"value.format is {options['value.format']!r}; it is raw or json")
    if (form == "json") != (schema is not None):
        raise InvalidSetting(
            'value.format json and value.schema, such as "client string, value double", are given together'
        )
    if schema is not None and "value" not in _columns(options):
        raise InvalidSetting("value.format is json, and value is not among columns; add it")
    return schema


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidSetting(f"{_SPELLED[name]} is {options[name]!r}; it is true or false")
    return text == "true"


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidSetting(f"{_SPELLED[name]} is {options[name]!r}; it is a whole number of at least 1")
    return int(text)

"""What a broker's process is told, checked at the door.

Defaults, then a TOML file, then the environment, then the command line; the later wins, name by name (sources.py).
Invariant: a `Settings` that exists can be started with; every refusal names the setting, its value, where it came
from, what is allowed and what to do.
Driven by the command line.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from ipaddress import IPv4Address
from typing import NoReturn

from millpond.app.sources import ENVIRONMENT_CONFIG, Given, Layer, from_environment, from_file, from_flags
from millpond.core.cluster.discovery import DnsName, MulticastGroup
from millpond.core.metadata.broker_configs import BROKER_KEYS, check_static
from millpond.core.metadata.config_keys import INT32_MAX, allowed, parse
from millpond.model.addresses import Address
from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass

KAFKA_DEFAULT = Address("127.0.0.1", 9092)
HTTP_DEFAULT = Address("127.0.0.1", 8080)
GRPC_USUAL = Address("127.0.0.1", 9090)
"""Written where somebody has to be shown an address; the door is shut unless it is asked for."""
PORT_MAX = 65_535
OFF = "off"
MULTICAST = "multicast"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*")
SECRET_FILE_BYTES_MAX = 4096
_CLUSTER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGITS = re.compile(r"[0-9]{1,10}")
_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\[\]\s]+)\]|(?P<plain>[^:\[\]\s]+)):(?P<port>[0-9]{1,5})")


class LogFormat(Enum):
    TEXT = "text"
    """For people: sentences, and a banner on a terminal."""
    JSON = "json"
    """For machines: one object a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data_dir: str = "./millpond-data"
    kafka: Address = KAFKA_DEFAULT
    """Port 0 takes a free one."""
    http: Address | None = HTTP_DEFAULT
    """Where HTTP is answered; None where it is not."""
    grpc: Address | None = None
    """Where gRPC is answered; None where it is not."""
    advertise: Address | None = None
    """Where clients are told to connect, if not to `kafka`; port 0 stands for the port it listens on."""
    node_id: int = 1
    offset_store: str | None = None
    """The URL of a plugin that keeps committed offsets; None keeps them in Millpond's own log."""
    insecure: bool = False
    """Somebody said in so many words that whoever reaches the port may do everything."""
    log_format: LogFormat = LogFormat.TEXT
    cluster_id: str = "millpond"
    peers: Mapping[int, Address | None] = field(default_factory=dict)
    """The brokers that found the cluster; one that is not among them joins it. Empty for a broker that is alone. Where
    one is found by `discovery`, it has no address here."""
    discovery: DnsName | MulticastGroup | None = None
    cluster_secret: bytes = field(default=b"", repr=False)
    configs: Mapping[str, str] = field(default_factory=dict)
    """Kafka's broker settings by name."""


def load(
    *, flags: Mapping[str, str], sets: Sequence[str], environ: Mapping[str, str], config: str | None = None
) -> Settings:
    """`flags` by setting, only those given; `config` is the file named on the command line."""
    layers: list[Layer] = []
    if config is not None:
        layers.append(from_file(config, source="--config"))
    elif path := environ.get(ENVIRONMENT_CONFIG):
        layers.append(from_file(path, source=f"environment {ENVIRONMENT_CONFIG}"))
    layers += [from_environment(environ), from_flags(flags, sets)]
    own: dict[str, Given] = {}
    configs: dict[str, Given] = {}
    for layer in layers:
        own |= layer.own
        configs |= layer.sets
    return _checked(own, configs)


def _checked(own: Mapping[str, Given], configs: Mapping[str, Given]) -> Settings:
    defaults = Settings()
    settings = Settings(
        data_dir=_data_dir(own["data-dir"]) if "data-dir" in own else defaults.data_dir,
        kafka=_address("kafka", own["kafka"]) if "kafka" in own else defaults.kafka,
        http=_door("http", own["http"], HTTP_DEFAULT) if "http" in own else defaults.http,
        grpc=_door("grpc", own["grpc"], GRPC_USUAL) if "grpc" in own else defaults.grpc,
        advertise=_address("advertise", own["advertise"]) if "advertise" in own else defaults.advertise,
        node_id=_node_id(own["node-id"]) if "node-id" in own else defaults.node_id,
        offset_store=_offset_store(own["offset-store"]) if "offset-store" in own else defaults.offset_store,
        insecure=_insecure(own["insecure"]) if "insecure" in own else defaults.insecure,
        log_format=_log_format(own["log-format"]) if "log-format" in own else defaults.log_format,
        cluster_id=_cluster_id(own["cluster-id"]) if "cluster-id" in own else defaults.cluster_id,
        peers=_peers(own["peers"]) if "peers" in own else defaults.peers,
        discovery=_discovery(own["discovery"]) if "discovery" in own else defaults.discovery,
        cluster_secret=_cluster_secret(own),
        configs=_configs(configs),
    )
    if "kafka" in own:
        _check_reach(settings, own["kafka"])
    if "http" in own:
        _check_http_reach(settings, own["http"])
    if "grpc" in own:
        _check_grpc_reach(settings, own["grpc"])
    _check_apart(settings)
    if settings.advertise is not None and settings.advertise.is_wildcard:
        _refuse("advertise", own["advertise"], "one address", "name the host or the address that clients use")
    return settings


def _refuse(name: str, given: Given, wanted: str, fix: str) -> NoReturn:
    shown = given.text if len(given.text) <= 80 else given.text[:80] + "…"
    raise InvalidSetting(f"{name} is {shown!r} ({given.source}); allowed is {wanted}; {fix}")


def _data_dir(given: Given) -> str:
    if not given.text.strip() or "\0" in given.text:
        _refuse("data-dir", given, "the path of a directory", "leave it out for ./millpond-data")
    return given.text.rstrip("/") or "/"


def _address(name: str, given: Given) -> Address:
    found = _ADDRESS.fullmatch(given.text.strip())
    if found is None or int(found["port"]) > PORT_MAX:
        _refuse(name, given, f"HOST:PORT with a port from 0 to {PORT_MAX}", "write for instance 127.0.0.1:9092")
    return _found_address(found)


def parse_address(name: str, text: str) -> Address:
    """Of a broker, as a command is told it."""
    return _address(name, Given(text, "command line"))


def _found_address(found: re.Match[str]) -> Address:
    return Address(found["bracketed"] or found["plain"], int(found["port"]))


def _door(name: str, given: Given, usual: Address) -> Address | None:
    if given.text.strip().lower() == OFF:
        return None
    found = _ADDRESS.fullmatch(given.text.strip())
    if found is None or int(found["port"]) > PORT_MAX:
        wanted = f"HOST:PORT with a port from 0 to {PORT_MAX}, or {OFF}"
        _refuse(name, given, wanted, f"write for instance {usual}")
    return _found_address(found)


def _node_id(given: Given, *, name: str = "node-id") -> int:
    text = given.text.strip()
    if _DIGITS.fullmatch(text) is None or int(text) > INT32_MAX:
        _refuse(name, given, f"a whole number from 0 to {INT32_MAX}", "write for instance 1")
    return int(text)


def _offset_store(given: Given) -> str:
    if _URL.fullmatch(given.text.strip()) is None:
        _refuse("offset-store", given, "a URL whose scheme names a plugin", "leave it out for Millpond's own log")
    return given.text.strip()


def _cluster_id(given: Given) -> str:
    if _CLUSTER_ID.fullmatch(given.text.strip()) is None:
        _refuse("cluster-id", given, "1 to 64 letters, digits, dots, dashes and underscores", "write for instance shop")
    return given.text.strip()


def _peers(given: Given) -> Mapping[int, Address | None]:
    peers: dict[int, Address | None] = {}
    for each in given.text.split(","):
        node_id, at, address = each.strip().partition("@")
        number = _node_id(Given(node_id, given.source), name="peers") if at or node_id.isdecimal() else -1
        if number < 0 or number in peers:
            _refuse(
                "peers",
                given,
                "NODE@HOST:PORT for each broker, or NODE where discovery finds it, each once",
                "write for instance 1@a:9092,2@b:9092",
            )
        peers[number] = _address("peers", Given(address, given.source)) if at else None
    return peers


def _discovery(given: Given) -> DnsName | MulticastGroup:
    way, colon, rest = given.text.strip().partition(":")
    if way == MULTICAST and not colon:
        return MulticastGroup()
    found = _ADDRESS.fullmatch(rest)
    if found is not None and 0 < int(found["port"]) <= PORT_MAX:
        address = _found_address(found)
        if way == "dns":
            return DnsName(address.host, address.port)
        if way == MULTICAST and _is_group(address.host):
            return MulticastGroup(address.host, address.port)
    _refuse(
        "discovery",
        given,
        f"dns:NAME:PORT, {MULTICAST}, or {MULTICAST}:GROUP:PORT with a group from 224.0.0.0 to 239.255.255.255",
        "write for instance dns:millpond.example:9092",
    )


def _is_group(host: str) -> bool:
    try:
        return IPv4Address(host).is_multicast
    except ValueError:
        return False


def _cluster_secret(own: Mapping[str, Given]) -> bytes:
    """Never shown, also where it is refused."""
    said, file = own.get("cluster-secret"), own.get("cluster-secret-file")
    if said is not None and file is not None:
        raise InvalidSetting(
            f"cluster-secret ({said.source}) and cluster-secret-file ({file.source}) are both given; leave one out"
        )
    if file is None:
        return b"" if said is None else said.text.strip().encode()
    try:
        with open(file.text, "rb") as content:
            return content.read(SECRET_FILE_BYTES_MAX).strip()
    except OSError as error:
        _refuse("cluster-secret-file", file, f"a file that can be read ({error.strerror})", "name one that is there")


def _insecure(given: Given) -> bool:
    text = given.text.strip().lower()
    if text not in ("true", "false"):
        _refuse("insecure", given, "true or false", "leave it out for false")
    return text == "true"


def _log_format(given: Given) -> LogFormat:
    try:
        return LogFormat(given.text.strip())
    except ValueError:
        _refuse("log-format", given, "text or json", "leave it out for text")


def _configs(given: Mapping[str, Given]) -> Mapping[str, str]:
    for name, each in given.items():
        try:
            parse(BROKER_KEYS[name], each.text)
        except InvalidSetting:
            key = BROKER_KEYS[name]
            _refuse(name, each, allowed(key), key.advice or f"leave it out for {key.default or 'an empty text'}")
    texts = {name: each.text.strip() for name, each in given.items()}
    check_static(texts)
    return texts


def _check_reach(settings: Settings, given: Given) -> None:
    if settings.kafka.is_loopback:
        return
    if not settings.insecure:
        _refuse(
            "kafka",
            given,
            "an address of this machine alone, such as 127.0.0.1:9092, because there is no authentication yet",
            "to let everybody who reaches that address read, write and delete everything, say --insecure",
        )
    if settings.kafka.is_wildcard and settings.advertise is None:
        _refuse(
            "kafka",
            given,
            "one address, because clients are told to come back to it",
            "say with --advertise which host or address clients use",
        )


def _check_http_reach(settings: Settings, given: Given) -> None:
    if settings.http is not None and not settings.http.is_loopback and not settings.insecure:
        _refuse(
            "http",
            given,
            "an address of this machine alone, such as 127.0.0.1:8080, because there is no authentication yet",
            "to let everybody who reaches that address read, write and delete everything, say --insecure",
        )


def _check_grpc_reach(settings: Settings, given: Given) -> None:
    if settings.grpc is not None and not settings.grpc.is_loopback and not settings.insecure:
        _refuse(
            "grpc",
            given,
            f"an address of this machine alone, such as {GRPC_USUAL}, because there is no authentication yet",
            "to let everybody who reaches that address read, write and delete everything, say --insecure",
        )


def _check_apart(settings: Settings) -> None:
    doors = {"kafka": settings.kafka, "http": settings.http, "grpc": settings.grpc}
    for one, other in (("kafka", "http"), ("kafka", "grpc"), ("http", "grpc")):
        address = doors[one]
        if address is not None and address.port and address == doors[other]:
            raise InvalidSetting(f"{one} and {other} are both {address}; give one of them another port")

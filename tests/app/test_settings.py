"""Settings: which source wins, and what every refusal says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.app.settings import LogFormat, Settings, load
from millpond.app.sources import INSTEAD, NAMES, Given, Layer, from_environment, from_file
from millpond.core.cluster.discovery import DnsName, MulticastGroup
from millpond.core.metadata.broker_configs import BROKER_KEYS
from millpond.model.addresses import Address
from millpond.model.errors import InvalidSetting


def settings(*sets: str, config: str | None = None, environ: dict[str, str] | None = None, **flags: str) -> Settings:
    named = {name.replace("_", "-"): text for name, text in flags.items()}
    return load(flags=named, sets=sets, environ=environ or {}, config=config)


def refusal(*sets: str, config: str | None = None, environ: dict[str, str] | None = None, **flags: str) -> str:
    with pytest.raises(InvalidSetting) as raised:
        settings(*sets, config=config, environ=environ, **flags)
    return str(raised.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "millpond.toml"


# What comes out


def test_nothing_has_to_be_said() -> None:
    assert settings() == Settings()
    assert str(Settings().kafka) == "127.0.0.1:9092"
    assert str(Settings().http) == "127.0.0.1:8080"
    assert Settings().data_dir == "./millpond-data"


def test_a_file_can_say_everything(file: Path) -> None:
    file.write_text(
        'data-dir = "d"\nkafka = "10.0.0.1:1"\nhttp = "10.0.0.1:3"\nadvertise = "a:2"\nnode-id = 7\ninsecure = true\n'
        'log-format = "json"\n'
        '[set]\nnum.partitions = 3\n"auto.create.topics.enable" = false\nlog.cleanup.policy = ["delete", "compact"]\n'
        "log.cleaner.min.cleanable.ratio = 0.25\n"
    )
    assert settings(config=str(file)) == Settings(
        data_dir="d",
        kafka=Address("10.0.0.1", 1),
        http=Address("10.0.0.1", 3),
        advertise=Address("a", 2),
        node_id=7,
        insecure=True,
        log_format=LogFormat.JSON,
        configs={
            "num.partitions": "3",
            "auto.create.topics.enable": "false",
            "log.cleanup.policy": "delete,compact",
            "log.cleaner.min.cleanable.ratio": "0.25",
        },
    )


def test_the_environment_can_say_everything(file: Path) -> None:
    file.write_text("node-id = 7\n")
    environ = {
        "MILLPOND_CONFIG": str(file),
        "MILLPOND_DATA_DIR": "d",
        "MILLPOND_KAFKA": "[::1]:0",
        "MILLPOND_INSECURE": "True",
        "MILLPOND_LOG_FORMAT": "json",
        "MILLPOND_SET_LOG_RETENTION_MS": "-1",
        "HOME": "elsewhere",
    }
    assert settings(environ=environ) == Settings(
        data_dir="d",
        kafka=Address("::1", 0),
        node_id=7,
        insecure=True,
        log_format=LogFormat.JSON,
        configs={"log.retention.ms": "-1"},
    )


def test_the_variables_a_cluster_manager_makes_for_a_service_of_our_name_are_passed_over() -> None:
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_KAFKA", "PORT", "PORT_9092_TCP", "PORT_9092_TCP_ADDR")
    environ = {f"MILLPOND_{middle}{name}": "tcp://10.0.0.1:9092" for name in names for middle in ("", "HEADLESS_")}
    assert settings(environ=environ) == Settings()


@pytest.mark.parametrize("name", ["BOOTSTRAP", "DOOR", "PURE"])
def test_variables_of_other_commands_are_passed_over(name: str) -> None:
    assert settings(environ={f"MILLPOND_{name}": "1"}) == Settings()


@pytest.mark.parametrize("name", sorted(set(BROKER_KEYS) - set(INSTEAD)))
def test_every_broker_setting_has_its_variable(name: str) -> None:
    variable = f"MILLPOND_SET_{name.upper().replace('.', '_')}"
    default = BROKER_KEYS[name].default
    assert settings(environ={variable: default}).configs == {name: default}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_an_address_reads_as_it_is_written(text: str, address: Address) -> None:
    assert settings(kafka=text).kafka == address
    assert str(address) == text


# Which source wins

layers = st.fixed_dictionaries(
    {},
    optional={
        "node-id": st.integers(0, 99).map(str),
        "data-dir": st.sampled_from("abc"),
        "num.partitions": st.integers(1, 99).map(str),
        "log.retention.ms": st.integers(0, 99).map(str),
    },
)


@given(in_file=layers, in_environment=layers, in_flags=layers)
def test_the_later_source_wins_name_by_name(
    tmp_path_factory: pytest.TempPathFactory,
    in_file: dict[str, str],
    in_environment: dict[str, str],
    in_flags: dict[str, str],
) -> None:
    file = tmp_path_factory.getbasetemp() / "precedence.toml"
    own = [f'{name} = "{text}"' for name, text in in_file.items() if name in NAMES]
    sets = [f'"{name}" = {text}' for name, text in in_file.items() if name not in NAMES]
    file.write_text("\n".join([*own, "[set]", *sets]))
    variables = {
        f"MILLPOND_{'' if name in NAMES else 'SET_'}{name.upper().replace('.', '_').replace('-', '_')}": text
        for name, text in in_environment.items()
    }
    found = load(
        flags={name: text for name, text in in_flags.items() if name in NAMES},
        sets=[f"{name}={text}" for name, text in in_flags.items() if name not in NAMES],
        environ=variables,
        config=str(file),
    )
    wanted = {"node-id": "1", "data-dir": "./millpond-data"} | in_file | in_environment | in_flags
    assert {"node-id": str(found.node_id), "data-dir": found.data_dir, **found.configs} == wanted


def test_the_last_of_a_repeated_set_wins() -> None:
    assert settings("num.partitions=1", "num.partitions = 2").configs == {"num.partitions": "2"}


def test_a_rack_is_said_like_any_other_setting_wherever_settings_come_from(file: Path) -> None:
    file.write_text('rack = "a"')
    assert settings(config=str(file)).configs == {"broker.rack": "a"}
    assert settings(config=str(file), environ={"MILLPOND_RACK": "b"}).configs == {"broker.rack": "b"}
    assert settings("broker.rack=c", config=str(file)).configs == {"broker.rack": "c"}
    assert settings(config=str(file), rack="d").configs == {"broker.rack": "d"}


def test_a_file_named_on_the_command_line_replaces_that_of_the_environment(file: Path) -> None:
    file.write_text("node-id = 3")
    assert settings(config=str(file), environ={"MILLPOND_CONFIG": "not there"}).node_id == 3


# What is refused, and how


@pytest.mark.parametrize("text", ["", "9092", "host", ":9092", "host:", "host:65536", "host:x", "::1:9092", "a b:1"])
def test_an_address_that_is_none(text: str) -> None:
    assert refusal(kafka=text) == (
        f"kafka is {text!r} (--kafka); allowed is HOST:PORT with a port from 0 to 65535; "
        "write for instance 127.0.0.1:9092"
    )


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "2147483648", "99999999999999999999", "²"])
def test_a_node_id_that_is_none(text: str) -> None:
    assert refusal(environ={"MILLPOND_NODE_ID": text}) == (
        f"node-id is {text!r} (environment MILLPOND_NODE_ID); allowed is a whole number from 0 to 2147483647; "
        "write for instance 1"
    )


def test_values_that_are_not_allowed() -> None:
    assert refusal(log_format="xml") == (
        "log-format is 'xml' (--log-format); allowed is text or json; leave it out for text"
    )
    assert refusal(environ={"MILLPOND_INSECURE": "yes"}) == (
        "insecure is 'yes' (environment MILLPOND_INSECURE); allowed is true or false; leave it out for false"
    )
    assert refusal(data_dir=" ") == (
        "data-dir is ' ' (--data-dir); allowed is the path of a directory; leave it out for ./millpond-data"
    )
    assert refusal("num.partitions=many") == (
        "num.partitions is 'many' (--set num.partitions); allowed is a whole number from 1 to 100000; "
        "leave it out for 1"
    )
    assert refusal("compression.type=brotli") == (
        "compression.type is 'brotli' (--set compression.type); allowed is producer or uncompressed or gzip or snappy "
        "or lz4 or zstd; leave it out for producer"
    )
    assert refusal("num.partitions") == (
        "--set is 'num.partitions'; allowed is name=value; write for instance --set num.partitions=3"
    )
    assert refusal("log.cleaner.min.compaction.lag.ms=2", "log.cleaner.max.compaction.lag.ms=1").endswith(
        "allowed is a least that is not above the most"
    )


def test_settings_that_do_not_fit_together_are_named_as_they_were_given() -> None:
    assert refusal("group.min.session.timeout.ms=10000", "group.max.session.timeout.ms=5000") == (
        "group.min.session.timeout.ms is 10000 and group.max.session.timeout.ms is 5000; allowed is a least that is "
        "not above the most"
    )
    assert refusal("controller.quorum.heartbeat.interval.ms=300") == (
        "controller.quorum.heartbeat.interval.ms is 300 and controller.quorum.election.timeout.ms is 500; allowed is "
        "an interval that fits twice into the timeout"
    )


def test_a_long_value_is_shown_in_part() -> None:
    assert "…" in refusal(node_id="9" * 1000)
    assert len(refusal(node_id="9" * 1000)) < 250


def test_a_value_of_the_wrong_kind_in_a_file_is_named_with_its_line(file: Path) -> None:
    file.write_text('data-dir = "d"\n\nnode-id = true\n')
    assert refusal(config=str(file)).startswith(f"node-id is 'true' ({file}:3); allowed is")
    file.write_text("[set]\nlog.retention.ms = 1\nnum.partitions = 0\n")
    assert f"({file}:3)" in refusal(config=str(file))
    file.write_text("[set.num]\npartitions = 0\n")
    assert f"({file}:2)" in refusal(config=str(file))
    file.write_text("node-id = 2026-01-01\n")
    assert refusal(config=str(file)) == (
        f"node-id ({file}:1) is of a kind that no setting has; allowed is a text, a number, true, false or a list "
        "of texts"
    )


def test_unknown_names_are_refused_with_the_nearest_that_is_known(file: Path) -> None:
    file.write_text("node_id = 1\n")
    assert refusal(config=str(file)) == f"'node_id' ({file}:1) is no setting; did you mean node-id?"
    file.write_text("[sets]\nnum.partitions = 1\n")
    assert refusal(config=str(file)) == f"'sets' ({file}:1) is no setting; did you mean set?"
    assert refusal("num.partition=1") == (
        "'num.partition' (--set) is no setting of a broker; did you mean num.partitions?"
    )
    assert refusal(environ={"MILLPOND_DATADIR": "d"}) == (
        "MILLPOND_DATADIR (environment) is no setting; did you mean MILLPOND_DATA_DIR?"
    )
    file.write_text("zzz = 1\n")
    assert refusal(config=str(file)).endswith(
        "there are advertise, cluster-id, cluster-secret, cluster-secret-file, data-dir, discovery, grpc, http, "
        "insecure, kafka, log-format, node-id, offset-store, peers, rack, set"
    )


def test_broker_settings_that_are_no_table_are_told_how_one_is_written(file: Path) -> None:
    file.write_text("set = 3\n")
    assert refusal(config=str(file)) == (f"set ({file}:1) is no table; write [set], and below it num.partitions = 3")


def test_a_broker_setting_outside_its_table_is_told_where_it_belongs(file: Path) -> None:
    file.write_text('"num.partitions" = 3\n')
    assert refusal(config=str(file)) == f"num.partitions ({file}:1) stands by itself; put it below [set]"


@pytest.mark.parametrize(("name", "instead"), INSTEAD.items())
def test_a_setting_with_a_name_of_its_own_here_is_not_set_twice(name: str, instead: str) -> None:
    assert refusal(f"{name}=1") == f"{name} (--set) has its own name here; give {instead} instead"


def test_a_file_that_cannot_be_read(file: Path) -> None:
    assert refusal(config=str(file)) == (
        f"config is {str(file)!r} (--config), which cannot be read: No such file or directory; "
        "name a TOML file that is there"
    )
    file.write_text("node-id = \n")
    assert refusal(environ={"MILLPOND_CONFIG": str(file)}) == (
        f"{file} is no TOML: Invalid value (at line 1, column 11); correct it there"
    )
    file.write_bytes(b"\xff")
    assert refusal(config=str(file)).startswith(f"{file} is no TOML: ")


# Who may reach it


@pytest.mark.parametrize("kafka", ["0.0.0.0:9092", "[::]:9092", "192.168.0.7:9092", "broker.example:9092"])
def test_nobody_listens_beyond_the_machine_by_accident(kafka: str) -> None:
    message = refusal(kafka=kafka)
    assert message.startswith(f"kafka is {kafka!r} (--kafka); allowed is an address of this machine alone")
    assert message.endswith("say --insecure")


def test_listening_beyond_the_machine_is_possible_when_it_is_said() -> None:
    assert settings(kafka="192.168.0.7:9092", insecure="true").kafka.host == "192.168.0.7"
    assert settings(kafka="127.9.9.9:9092").kafka.is_loopback


def test_an_address_that_no_client_could_come_back_to_is_refused() -> None:
    assert refusal(kafka="0.0.0.0:9092", insecure="true") == (
        "kafka is '0.0.0.0:9092' (--kafka); allowed is one address, because clients are told to come back to it; "
        "say with --advertise which host or address clients use"
    )
    assert refusal(advertise="[::]:9092") == (
        "advertise is '[::]:9092' (--advertise); allowed is one address; name the host or the address that clients use"
    )


def test_every_address_of_the_machine_can_be_listened_on_when_clients_are_told_one() -> None:
    found = settings(kafka="0.0.0.0:9092", insecure="true", advertise="broker.example:0")
    assert found.kafka == Address("0.0.0.0", 9092)
    assert found.advertise == Address("broker.example", 0)


# The sources by themselves


def test_each_source_says_where_it_is(file: Path) -> None:
    file.write_text("node-id = 1\n")
    assert from_file(str(file), source="--config") == Layer(own={"node-id": Given("1", f"{file}:1")}, sets={})
    assert from_environment({"MILLPOND_NODE_ID": "1"}).own["node-id"].source == "environment MILLPOND_NODE_ID"


# The HTTP door


@pytest.mark.parametrize("text", ["off", "OFF", " off "])
def test_the_http_door_can_be_shut(text: str) -> None:
    assert settings(http=text).http is None
    assert settings(environ={"MILLPOND_HTTP": text}).http is None


def test_the_http_door_can_be_elsewhere() -> None:
    assert settings(http="[::1]:0").http == Address("::1", 0)
    assert settings(environ={"MILLPOND_HTTP": "localhost:81"}).http == Address("localhost", 81)


@pytest.mark.parametrize("text", ["", "8080", "127.0.0.1", "127.0.0.1:65536", "on", "http://127.0.0.1:8080"])
def test_an_http_address_that_is_none(text: str) -> None:
    assert refusal(http=text) == (
        f"http is {text!r} (--http); allowed is HOST:PORT with a port from 0 to 65535, or off; "
        "write for instance 127.0.0.1:8080"
    )


def test_the_http_door_opens_beyond_this_machine_only_when_told_in_so_many_words() -> None:
    assert refusal(http="0.0.0.0:8080") == (
        "http is '0.0.0.0:8080' (--http); allowed is an address of this machine alone, such as 127.0.0.1:8080, because "
        "there is no authentication yet; to let everybody who reaches that address read, write and delete everything, "
        "say --insecure"
    )
    assert settings(http="0.0.0.0:8080", insecure="true").http == Address("0.0.0.0", 8080)


def test_two_doors_are_never_at_one_address() -> None:
    message = "kafka and http are both 127.0.0.1:8080; give one of them another port"
    assert refusal(kafka="127.0.0.1:8080") == message
    assert settings(kafka="127.0.0.1:8080", http="off").http is None
    assert settings(kafka="127.0.0.1:0", http="127.0.0.1:0").http == Address("127.0.0.1", 0)


# The gRPC door


def test_the_grpc_door_is_shut_unless_it_is_said_where_it_is() -> None:
    assert settings().grpc is None
    assert settings(grpc="off").grpc is None
    assert settings(grpc="127.0.0.1:9090").grpc == Address("127.0.0.1", 9090)
    assert settings(environ={"MILLPOND_GRPC": "localhost:0"}).grpc == Address("localhost", 0)
    assert refusal(grpc="on") == (
        "grpc is 'on' (--grpc); allowed is HOST:PORT with a port from 0 to 65535, or off; write for instance "
        "127.0.0.1:9090"
    )


def test_the_grpc_door_is_no_wider_and_nowhere_else_than_allowed() -> None:
    assert refusal(grpc="0.0.0.0:9090") == (
        "grpc is '0.0.0.0:9090' (--grpc); allowed is an address of this machine alone, such as 127.0.0.1:9090, because "
        "there is no authentication yet; to let everybody who reaches that address read, write and delete everything, "
        "say --insecure"
    )
    assert settings(grpc="0.0.0.0:9090", insecure="true").grpc == Address("0.0.0.0", 9090)
    assert refusal(grpc="127.0.0.1:8080") == "http and grpc are both 127.0.0.1:8080; give one of them another port"
    assert refusal(grpc="127.0.0.1:9092") == "kafka and grpc are both 127.0.0.1:9092; give one of them another port"


# Others of the cluster


def test_peers_are_named_with_their_addresses() -> None:
    settings = load(flags={}, sets=[], environ={"MILLPOND_PEERS": "1@127.0.0.1:9092, 2@b.example:9093,3@[::1]:9"})
    assert {node_id: str(address) for node_id, address in settings.peers.items()} == {
        1: "127.0.0.1:9092",
        2: "b.example:9093",
        3: "[::1]:9",
    }


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9092", "1@a:1,1@b:1", "1,1", "1,,2", "x@a:1", "1@a", "1@a:99999", "-1@a:1"]
)
def test_peers_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"peers is .*environment MILLPOND_PEERS"):
        load(flags={}, sets=[], environ={"MILLPOND_PEERS": text})


def test_peers_that_are_discovered_have_no_address() -> None:
    assert settings(peers="1, 2@b:9092,3").peers == {1: None, 2: Address("b", 9092), 3: None}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("dns:millpond.example:9092", DnsName("millpond.example", 9092)),
        ("multicast", MulticastGroup("239.255.90.92", 9092)),
        ("multicast:239.1.2.3:7000", MulticastGroup("239.1.2.3", 7000)),
    ],
)
def test_a_way_of_discovery_is_read(text: str, found: DnsName | MulticastGroup) -> None:
    assert settings(discovery=text).discovery == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dns",
        "dns:a",
        "dns:a:0",
        "dns:a:70000",
        "multicast:",
        "multicast:10.0.0.1:9092",
        "multicast:a:1",
        "etcd:a:1",
    ],
)
def test_another_way_of_discovery_is_refused(text: str) -> None:
    assert refusal(discovery=text) == (
        f"discovery is {text!r} (--discovery); allowed is dns:NAME:PORT, multicast, or multicast:GROUP:PORT with a "
        "group from 224.0.0.0 to 239.255.255.255; write for instance dns:millpond.example:9092"
    )


def test_a_cluster_has_a_name() -> None:
    assert (settings().cluster_id, settings(cluster_id="shop-2").cluster_id) == ("millpond", "shop-2")
    for text in ("", "a b", "x" * 65):
        assert "cluster-id is" in refusal(cluster_id=text)


def test_the_secret_comes_from_the_environment_or_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("whispered in the mill\n")
    by_name = load(flags={}, sets=[], environ={"MILLPOND_CLUSTER_SECRET": "whispered in the mill"})
    by_file = load(flags={}, sets=[], environ={"MILLPOND_CLUSTER_SECRET_FILE": str(file)})
    assert by_name.cluster_secret == by_file.cluster_secret == b"whispered in the mill"
    assert "whispered" not in repr(by_name)
    both = {"MILLPOND_CLUSTER_SECRET": "whispered in the mill", "MILLPOND_CLUSTER_SECRET_FILE": str(file)}
    with pytest.raises(InvalidSetting, match="leave one out") as refusal:
        load(flags={}, sets=[], environ=both)
    assert "whispered" not in str(refusal.value)


def test_a_secret_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="cluster-secret-file is"):
        load(flags={}, sets=[], environ={"MILLPOND_CLUSTER_SECRET_FILE": str(tmp_path / "none")})

"""`millpond up`: one broker, or a small cluster on this machine, in the foreground, until it is told to stop."""

from typing import Annotated

from typer import Option

from millpond.cli.options import examples
from millpond.cli.starting import INSECURE, Start, start
from millpond.model.errors import InvalidSetting

Text = str | None

Config = Annotated[Text, Option(help="A TOML file with settings; see above.", metavar="FILE")]
DataDir = Annotated[
    Text, Option(help="Where the data is kept; made if it is not there.  [dim]./millpond-data[/dim]", metavar="DIR")
]
Kafka = Annotated[
    Text,
    Option(
        help="Where Kafka clients connect; port 0 takes a free one.  [dim]127.0.0.1:9092[/dim]", metavar="HOST:PORT"
    ),
]
Http = Annotated[
    Text,
    Option(
        help="Where HTTP is: messages, topics, groups, metrics, health; or off.  [dim]127.0.0.1:8080[/dim]",
        metavar="HOST:PORT|off",
    ),
]
Grpc = Annotated[
    Text, Option(help="Where gRPC clients connect; needs millpond\\[grpc].  [dim]off[/dim]", metavar="HOST:PORT|off")
]
Advertise = Annotated[
    Text, Option(help="Where clients are told to connect, if that is another address.", metavar="HOST:PORT")
]
NodeId = Annotated[Text, Option(help="This broker's number in its cluster.  [dim]1[/dim]", metavar="N")]
Cluster = Annotated[
    int | None,
    Option(help="Start so many brokers here, for trying a cluster: on this port and the next ones.", metavar="N"),
]
Peers = Annotated[
    Text,
    Option(
        help="The brokers that found a cluster; the same list on each. With --discovery, node ids will do.",
        metavar="NODE[@HOST:PORT],...",
    ),
]
Discovery = Annotated[
    Text,
    Option(help="How peers without an address are found.", metavar="dns:NAME:PORT|multicast[:GROUP:PORT]"),
]
ClusterId = Annotated[Text, Option(help="The cluster's name.  [dim]millpond[/dim]", metavar="NAME")]
SecretFile = Annotated[Text, Option(help="A file with the secret that all brokers of a cluster share.", metavar="FILE")]
Secret = Annotated[Text, Option(hidden=True)]
Rack = Annotated[Text, Option(help="Where this broker stands; replicas are spread over racks.", metavar="NAME")]
OffsetStore = Annotated[
    Text, Option(help="A plugin that keeps committed offsets.  [dim]Millpond's own log[/dim]", metavar="SCHEME:...")
]
Sets = Annotated[
    list[str] | None,
    Option("--set", help="A broker setting by Kafka's name; may be repeated.", metavar="NAME=VALUE"),
]
Insecure = Annotated[
    bool, Option("--insecure", help="Listen beyond this machine, where everybody may read and delete everything.")
]
Format = Annotated[
    Text, Option(help="Sentences for people, or JSON lines for machines.  [dim]text[/dim]", metavar="text|json")
]
UP_EXAMPLES = examples(
    "millpond up",
    "millpond up --data-dir data --kafka 127.0.0.1:9192 --set num.partitions=3",
    "millpond up --cluster 3",
)


def up(
    config: Config = None,
    data_dir: DataDir = None,
    kafka: Kafka = None,
    http: Http = None,
    grpc: Grpc = None,
    advertise: Advertise = None,
    node_id: NodeId = None,
    cluster: Cluster = None,
    peers: Peers = None,
    discovery: Discovery = None,
    cluster_id: ClusterId = None,
    cluster_secret_file: SecretFile = None,
    cluster_secret: Secret = None,
    rack: Rack = None,
    offset_store: OffsetStore = None,
    sets: Sets = None,
    insecure: Insecure = False,
    log_format: Format = None,
) -> None:
    """Start a broker, and stop it with Ctrl-C. With --cluster 3, a cluster of three on this machine.

    Settings come from the command line, else from the environment, else from a TOML file.

    As a variable, --kafka is MILLPOND_KAFKA and --set num.partitions=3 is MILLPOND_SET_NUM_PARTITIONS=3.

    In a file they are kafka = "127.0.0.1:9092" and, below \\[set], num.partitions = 3.
    """
    _refuse_secret(cluster_secret)
    given = {
        "data-dir": data_dir,
        "kafka": kafka,
        "http": http,
        "grpc": grpc,
        "advertise": advertise,
        "node-id": node_id,
        "peers": peers,
        "discovery": discovery,
        "cluster-id": cluster_id,
        "cluster-secret-file": cluster_secret_file,
        "rack": rack,
        "offset-store": offset_store,
        "log-format": log_format,
        INSECURE: "true" if insecure else None,
    }
    flags = {name: text for name, text in given.items() if text is not None}
    start(Start(flags=flags, sets=sets or [], config=config, cluster=cluster))


def _refuse_secret(given: str | None) -> None:
    if given is not None:
        raise InvalidSetting(
            "--cluster-secret is not taken on the command line, where every user of this machine can read it in the "
            "list of processes; put the secret into a file that only this user can read and give "
            "--cluster-secret-file, or into the environment as MILLPOND_CLUSTER_SECRET"
        )

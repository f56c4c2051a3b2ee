"""RabbitMQ, with publisher confirms: a quorum queue, which syncs before it confirms, and one that keeps to memory.

It talks AMQP 0-9-1 here, as little of it as a publisher and a consumer need (amqp.py).
"""

import os
from collections.abc import Mapping
from pathlib import Path

from bench.broker.driving import connect, count_messages
from bench.broker.figures import Durability
from bench.broker.peers import amqp
from bench.broker.peers.cache import DEBIAN_ROOT, HOW, library_path
from bench.broker.peers.pipelining import produce_pipelined
from bench.broker.processes import ServerProcess, free_port
from bench.broker.systems import Run, timed_run

_ERLANG = DEBIAN_ROOT / "usr" / "lib" / "erlang"
_ERL = """#!/bin/sh
export ROOTDIR={root} BINDIR={binaries} EMU=beam PROGNAME=erl
exec "$BINDIR/erlexec" "$@"
"""
"""Erlang as Debian packs it looks for itself in one place only."""


class RunningRabbitMQ:
    def __init__(self, directory: Path) -> None:
        self.port, mapper_port = free_port(), free_port()
        binaries = next(_ERLANG.glob("erts-*")) / "bin"
        erl = directory / "erl"
        erl.write_text(_ERL.format(root=_ERLANG, binaries=binaries))
        erl.chmod(0o755)
        (directory / "rabbitmq.conf").touch()
        mapper = [str(binaries / "epmd"), "-port", str(mapper_port), "-address", "127.0.0.1"]
        # Erlang's port mapper would else be left behind as a daemon.
        self._mapper = ServerProcess(mapper, directory)
        environ = {
            **library_path(),
            "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(mapper_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        }
        self.process = ServerProcess([str(_server())], directory, environ)

    def make_queue(self, name: str, durability: Durability) -> None:
        with connect(self.port) as connection:
            amqp.declare(amqp.Channel(connection), name, quorum=durability is Durability.SYNCED)

    def publisher(self, name: str, durability: Durability) -> amqp.Publishing:
        return amqp.Publishing(connect(self.port), name, persistent=durability is Durability.SYNCED)

    def produce_many(self, name: str, durability: Durability, count: int) -> list[Run]:
        return [produce_pipelined(lambda: self.publisher(name, durability), count, self.process)]

    def consume_many(self, name: str, count: int) -> list[Run]:
        return [timed_run("pushed, not acknowledged", count, self.process, lambda: self._read(name, count))]

    def _read(self, name: str, count: int) -> None:
        with connect(self.port) as connection:
            early = amqp.consume(amqp.Channel(connection), name)
            count_messages(connection, count, early=early)

    def stop(self) -> None:
        self.process.stop()
        self._mapper.stop()


class RabbitMQ:
    name = "RabbitMQ"
    durabilities: Mapping[Durability, str] = {
        Durability.SYNCED: "quorum queue",
        Durability.NOT_SYNCED: "classic queue, transient",
    }

    def why_not_here(self) -> str | None:
        return None if _server() and any(_ERLANG.glob("erts-*")) else f"not fetched: {HOW}"

    def version(self) -> str:
        return next(each for each in str(_server()).split(os.sep) if "_server-" in each).rpartition("-")[2]

    def start(self, directory: Path) -> RunningRabbitMQ:
        return RunningRabbitMQ(directory)


def _server() -> Path | None:
    """The script itself: the one on the path changes to another user first."""
    return next((DEBIAN_ROOT / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"), None)

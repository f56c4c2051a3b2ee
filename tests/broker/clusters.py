"""Several brokers on simulated machines, each with a disk of its own: started, ended, and asked.

Driven by the tests of a cluster beside it and by tests/simulation.
"""

import errno
from collections.abc import Mapping

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.model.errors import DiskFailed, MillpondError
from millpond.testing import SimDisk, SimHost, Simulation
from millpond.testing.hosts import HostDown

PORT = 9092
SECRET = b"all brokers of this cluster know it"
CONFIGS = {
    "offsets.topic.num.partitions": "1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class Machine:
    """A host, its disk, and the broker that runs there, if one does."""

    def __init__(self, cluster: "SimCluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.name = f"m{node_id}"
        self.host: SimHost = cluster.sim.host(self.name)
        self.disks = 0
        self.disk = self._new_disk()
        self.rng = cluster.sim.loop.chance(f"broker {node_id}")
        self.broker: Broker | None = None

    def _new_disk(self) -> SimDisk:
        purpose = f"disk {self.node_id}" + f" no. {self.disks}" * (self.disks > 0)
        disk = SimDisk(self.cluster.sim.loop.chance(purpose), spend=self.cluster.sim.loop.spend)
        disk.on_power_cut = self.host.cut_power
        self.disks += 1
        return disk

    def lose_disk(self) -> None:
        """While it is down: it comes back with an empty one."""
        self.disk = self._new_disk()

    def holds_lease(self) -> bool:
        """By its own clock."""
        return self.broker is not None and self.host.look(self.broker.life.holds_lease)

    def settings(self, **changes: object) -> BrokerSettings:
        given: dict[str, object] = {
            "data_directory": "data",
            "node_id": self.node_id,
            "host": self.name,
            "port": PORT,
            "peers": self.cluster.peers,
            "cluster_secret": SECRET,
            "configs": self.cluster.configs,
        }
        return BrokerSettings(**{**given, **changes})  # type: ignore[arg-type]

    async def start(self, **changes: object) -> Broker:
        """Returns when it is open to clients. HostDown when the machine does not live to see it."""
        self.broker = None
        try:
            broker = await self.host.run(self._start(self.settings(**changes)))
        except OSError as error:
            if error.errno in (errno.EIO, errno.ENOSPC):  # before there was a log to say so
                raise DiskFailed(str(error)) from error
            raise
        self.broker = broker
        return broker

    async def _start(self, settings: BrokerSettings) -> Broker:
        return await Broker.start(
            settings,
            filesystem=self.disk,
            clock=self.cluster.sim.clock,
            rng=self.rng,
            on_error=self.cluster.failures.append,
        )

    async def stop(self) -> None:
        assert self.broker is not None
        broker, self.broker = self.broker, None
        await self.host.run(broker.stop(grace_seconds=1))
        self.host.kill()
        self.disk.end_process()

    def kill(self) -> None:
        self.broker = None
        self.host.kill()
        self.disk.end_process()

    def cut_power(self) -> None:
        self.broker = None
        self.host.cut_power()
        self.disk.crash()

    async def create_topic(self, name: str, *, partitions: int = 1, replication: int = 1) -> bool:
        """Whether it was made; False where it is not known, or was refused."""
        broker = self.broker
        assert broker is not None
        node, wanted = broker.node, [NewTopic(name=name, partitions=partitions, replication_factor=replication)]
        try:
            decision = await self.host.run(
                node.metadata.decide(lambda image: create_topics(image, wanted, static=node.static, rng=node.rng))
            )
        except (MillpondError, HostDown):
            return False
        return not any(isinstance(answer, Refused) for answer in decision.answers)


class SimCluster:
    def __init__(self, sim: Simulation, size: int, *, configs: Mapping[str, str] | None = None) -> None:
        self.sim = sim
        self.configs = {**CONFIGS, **(configs or {})}
        self.failures: list[BaseException] = []
        """What brokers reported as bugs."""
        self.peers = {node_id: (f"m{node_id}", PORT) for node_id in range(1, size + 1)}
        self.machines = {node_id: Machine(self, node_id) for node_id in self.peers}

    def add(self) -> Machine:
        """A machine for a broker that is not among the founders."""
        node_id = len(self.machines) + 1
        self.machines[node_id] = Machine(self, node_id)
        return self.machines[node_id]

    def __getitem__(self, node_id: int) -> Machine:
        return self.machines[node_id]

    @property
    def up(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.broker is not None]

    async def start_all(self) -> None:
        tasks = [self.sim.loop.create_task(machine.start()) for machine in self.machines.values()]
        for task in tasks:
            await task

    async def stop_all(self) -> None:
        """In any order; what one waits for may be gone already."""
        for machine in self.up:
            await machine.stop()
        self.check()

    def controller(self) -> Machine | None:
        for machine in self.up:
            if machine.broker is not None and machine.broker.node.metadata.quorum.is_controller:
                return machine
        return None

    def check(self) -> None:
        if self.failures:
            raise self.failures[0]

"""What is done to a cluster in a chaos: to one broker for some seconds, or to all of them at once.

Faults are dealt like cards, in each round first every one of them and then some again, so that a run of some minutes
has them all; the seed shuffles. At most one broker is away at a time, so that there is always a majority, but for the
times when all are killed or lose their power together.

What a broker owes, besides its promises to clients: it comes back by itself from everything that ends; only one that
has said that its disk failed is restarted, as it asks for.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from tests.interop.chaos_ground import Ground
from tests.interop.cluster_processes import ClusterBroker, ClusterProcesses, kind_of
from tests.machine.network import Network

Fault = Callable[[ClusterBroker, float], None]

TWICE_SECONDS_MAX = 1.0
DISK_FULL, DISK_FAILED = "DiskFull", "DiskFailed"


class Faults:
    def __init__(
        self, cluster: ClusterProcesses, ground: Ground, rng: random.Random, *, only: Collection[str] = ()
    ) -> None:
        """`only` those of these names; all where none is named."""
        self._cluster = cluster
        self._ground = ground
        self._rng = rng
        self._heard = Counter[int]()
        """How many lines of each broker have been looked at for a failed disk."""
        kinds: dict[Fault, int] = {
            self._kill: 3,
            self._kill_twice: 1,
            self._kill_all: 1,
            self._pause: 2,
            self._restart: 2,
        }
        network = ground.network
        if network is not None:
            self._network: Network = network
            kinds |= {
                self._cut_off: 2,
                self._cut_off_from_brokers: 2,
                self._cut_one_cable: 2,
                self._hears_nobody: 1,
                self._is_heard_by_nobody: 1,
            }
            kinds |= {self._lose_packets: 1} if network.has_nft else {}
            kinds |= {self._slow_down: 1} if network.slows_by else {}
        if ground.disks:
            kinds |= {self._cut_power: 2, self._cut_power_twice: 1, self._cut_power_of_all: 1, self._fill_disk: 2}
        names = [self.name(fault) for fault in kinds]
        assert set(only) <= set(names), f"{sorted(set(only) - set(names))} cannot be done here; these can: {names}"
        kinds = {fault: count for fault, count in kinds.items() if not only or self.name(fault) in only}
        self._once = list(kinds)
        self._again = [fault for fault, count in kinds.items() for _ in range(count - 1)]

    @staticmethod
    def name(fault: Fault) -> str:
        return fault.__name__.strip("_").replace("_", " ")

    def deal(self) -> Iterator[Fault]:
        """For ever."""
        while True:
            for faults in (self._once, self._again):
                yield from self._rng.sample(faults, len(faults))

    # Processes

    def _kill(self, broker: ClusterBroker, seconds: float) -> None:
        broker.kill()
        wait(seconds)
        broker.start()

    def _kill_twice(self, broker: ClusterBroker, seconds: float) -> None:
        """Once more while it recovers."""
        broker.kill()
        broker.launch()
        wait(min(seconds, TWICE_SECONDS_MAX))
        broker.kill()
        broker.start()

    def _kill_all(self, broker: ClusterBroker, seconds: float) -> None:
        for each in self._cluster.brokers.values():
            each.kill()
        wait(min(seconds, TWICE_SECONDS_MAX))
        self._cluster.launch()

    def _pause(self, broker: ClusterBroker, seconds: float) -> None:
        broker.pause()
        wait(seconds)
        broker.resume()

    def _restart(self, broker: ClusterBroker, seconds: float) -> None:
        broker.stop()
        wait(seconds)
        broker.start()

    # The network

    def _cut_off(self, broker: ClusterBroker, seconds: float) -> None:
        self._network.drop(self._network.around(broker.node_id))
        self._heal_after(seconds)

    def _cut_off_from_brokers(self, broker: ClusterBroker, seconds: float) -> None:
        """Clients reach it still, and must not be told anything that the others do not know."""
        self._network.drop(self._network.around(broker.node_id, others=self._cluster.brokers))
        self._heal_after(seconds)

    def _cut_one_cable(self, broker: ClusterBroker, seconds: float) -> None:
        """Between it and one other; both see the third."""
        other = self._rng.choice([each for each in self._cluster.brokers if each != broker.node_id])
        self._network.drop(self._network.around(broker.node_id, others=[other]))
        self._heal_after(seconds)

    def _hears_nobody(self, broker: ClusterBroker, seconds: float) -> None:
        self._network.drop(way for way in self._network.around(broker.node_id) if way[1] == broker.node_id)
        self._heal_after(seconds)

    def _is_heard_by_nobody(self, broker: ClusterBroker, seconds: float) -> None:
        self._network.drop(way for way in self._network.around(broker.node_id) if way[0] == broker.node_id)
        self._heal_after(seconds)

    def _lose_packets(self, broker: ClusterBroker, seconds: float) -> None:
        self._network.drop((), lossy=self._network.around(broker.node_id))
        self._heal_after(seconds)

    def _slow_down(self, broker: ClusterBroker, seconds: float) -> None:
        self._network.slow_down(broker.node_id)
        try:
            wait(seconds)
        finally:
            self._network.speed_up(broker.node_id)

    def _heal_after(self, seconds: float) -> None:
        try:
            wait(seconds)
        finally:
            self._network.drop(())

    # Disks

    def _cut_power(self, broker: ClusterBroker, seconds: float) -> None:
        self._lose_power(broker)
        wait(seconds)
        self._ground.disks[broker.node_id].restore_power()
        broker.start()

    def _cut_power_twice(self, broker: ClusterBroker, seconds: float) -> None:
        """Once more while it recovers."""
        self._lose_power(broker)
        self._ground.disks[broker.node_id].restore_power()
        broker.launch()
        wait(min(seconds, TWICE_SECONDS_MAX))
        self._lose_power(broker)
        self._ground.disks[broker.node_id].restore_power()
        broker.start()

    def _cut_power_of_all(self, broker: ClusterBroker, seconds: float) -> None:
        for each in self._cluster.brokers.values():
            self._lose_power(each)
        wait(min(seconds, TWICE_SECONDS_MAX))
        for disk in self._ground.disks.values():
            disk.restore_power()
        self._cluster.launch()

    def _lose_power(self, broker: ClusterBroker) -> None:
        """A disk without power may still tell a sync that it is done; a broker without power does not hear it."""
        broker.freeze()
        self._ground.disks[broker.node_id].cut_power()
        broker.kill()

    def _fill_disk(self, broker: ClusterBroker, seconds: float) -> None:
        broker.excused |= {DISK_FULL, DISK_FAILED}
        disk = self._ground.disks[broker.node_id]
        disk.fill()
        try:
            wait(seconds)
        finally:
            disk.free()

    def restart_failed(self) -> list[int]:
        """Those that have said so since they were asked last: what a full disk did to them may be beyond repair."""
        failed = []
        for node_id, broker in self._cluster.brokers.items():
            lines = broker.told[self._heard[node_id] :]
            self._heard[node_id] += len(lines)
            if any(kind_of(line) == DISK_FAILED for line in lines):
                broker.stop()
                broker.start()
                failed.append(node_id)
        return failed


def wait(seconds: float) -> None:
    """Time is what faults are made of; nothing is asserted about it."""
    threading.Event().wait(seconds)

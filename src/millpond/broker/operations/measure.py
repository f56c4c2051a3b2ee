"""Measure: everything a broker shows of itself, for one scrape.

Takes turns with requests where there is much to look at. Driven by the HTTP door.
"""

import asyncio
import platform
from collections import defaultdict
from collections.abc import Iterable

from millpond import __version__
from millpond.broker.drivers.delays import DelayKeeper
from millpond.broker.drivers.partition import Partition
from millpond.broker.node import Node
from millpond.broker.operations.health import failed_logs, why_not_ready
from millpond.broker.operations.lag import LagSurvey
from millpond.core.delivery.states import Lane
from millpond.net.facts import NetworkFacts
from millpond.telemetry import catalogue
from millpond.telemetry.collect import add_group_facts, add_http, add_network, add_requests, add_storage
from millpond.telemetry.exposition import Exposition
from millpond.telemetry.http import HttpFacts
from millpond.telemetry.loop_delay import LoopDelay
from millpond.telemetry.requests import RequestFacts

SERIES_PER_TURN = 200


class Meter:
    def __init__(
        self,
        node: Node,
        *,
        network: NetworkFacts,
        requests: RequestFacts,
        http: HttpFacts,
        loop_delay: LoopDelay,
        started_ms: int,
    ) -> None:
        """`started_ms` is by the monotonic clock."""
        self._node = node
        self._network = network
        self._requests = requests
        self._http = http
        self._loop_delay = loop_delay
        self._started_ms = started_ms
        self._lags = LagSurvey(node)

    async def measure(self) -> Exposition:
        to, node = Exposition(), self._node
        self._add_process(to)
        add_http(to, self._http)
        add_requests(to, self._requests)
        add_network(to, self._network)
        for why, count in node.datagrams_ignored.items():
            to.add(catalogue.DATAGRAMS_IGNORED, (why.value,), count)
        add_storage(to, node.partitions.facts)
        to.add(catalogue.LOGS_FAILED, (), len(failed_logs(node)))
        await _add_partitions(to, list(node.partitions))
        _add_delays(to, node.delays)
        await add_queues(to, node)
        add_group_facts(to, node.groups.facts)
        await _add_groups(to, node)
        await self._add_lags(to)
        return to

    def _add_process(self, to: Exposition) -> None:
        node = self._node
        to.add(catalogue.BUILD_INFO, (__version__, platform.python_version()), 1)
        to.add(catalogue.UPTIME, (), (node.clock.monotonic_ms() - self._started_ms) / 1000)
        to.add(catalogue.READY, (), not why_not_ready(node))
        to.add_latencies(catalogue.LOOP_DELAY, (), self._loop_delay.latencies)

    async def _add_lags(self, to: Exposition) -> None:
        async for group, lags in self._lags.look():
            for turn, lag in enumerate(lags, start=1):
                if turn % SERIES_PER_TURN == 0:
                    await asyncio.sleep(0)
                labels = (group, lag.at.topic, str(lag.at.partition))
                if lag.messages is not None:
                    to.add(catalogue.GROUP_LAG_MESSAGES, labels, lag.messages)
                if lag.ms is not None:
                    to.add(catalogue.GROUP_LAG_SECONDS, labels, lag.ms / 1000)
                elif lag.messages is not None:
                    to.drop(catalogue.GROUP_LAG_SECONDS)


async def _add_partitions(to: Exposition, partitions: Iterable[Partition]) -> None:
    by_topic: dict[str, list[Partition]] = defaultdict(list)
    for turn, each in enumerate(partitions):
        by_topic[each.at.topic].append(each)
        labels = (each.at.topic, str(each.at.partition))
        to.add(catalogue.START_OFFSET, labels, each.log.start_offset)
        to.add(catalogue.END_OFFSET, labels, each.high_watermark)
        to.add(catalogue.SIZE_BYTES, labels, each.log.size_bytes())
        if turn % SERIES_PER_TURN == 0:
            await asyncio.sleep(0)
    for topic, those in by_topic.items():
        to.add(catalogue.PRODUCED_BYTES, (topic,), sum(each.log.appended_bytes for each in those))
        to.add(catalogue.PRODUCED_BATCHES, (topic,), sum(each.log.appended_batches for each in those))
        to.add(catalogue.FETCHED_BYTES, (topic,), sum(each.fetched_bytes for each in those))
        to.add(catalogue.FETCHED_MESSAGES, (topic,), sum(each.fetched_messages for each in those))


def _add_delays(to: Exposition, delays: DelayKeeper) -> None:
    for at, pending in delays.pending():
        to.add(catalogue.DELAYED_PENDING, (at.topic, str(at.partition)), pending)
    facts = delays.facts
    to.add(catalogue.DELAYED_PARKED, (), facts.parked)
    to.add(catalogue.DELAYED_DELIVERED, (), facts.delivered)
    to.add(catalogue.DELAYED_CANCELLED, (), facts.cancelled)
    to.add_latencies(catalogue.DELAYED_LATENESS, (), facts.lateness)


async def add_queues(to: Exposition, node: Node) -> None:
    for turn, queue in enumerate(node.queues, start=1):
        ledger, partition = queue.ledger, queue.partition
        labels = (queue.group, partition.at.topic, str(partition.at.partition))
        for lane in Lane:
            to.add(catalogue.QUEUE_READY, (*labels, lane.name.lower()), queue.depth(lane))
        to.add(catalogue.QUEUE_IN_FLIGHT, labels, ledger.leased)
        to.add(catalogue.QUEUE_UNFINISHED, labels, ledger.begun)
        to.add(catalogue.QUEUE_OLDEST_SECONDS, labels, queue.oldest_ms() / 1000)
        for what, count in sorted(ledger.counts.items()):
            to.add(catalogue.QUEUE_MESSAGES, (*labels, what), count)
        if turn % SERIES_PER_TURN == 0:
            await asyncio.sleep(0)


async def _add_groups(to: Exposition, node: Node) -> None:
    groups = node.groups
    for turn, listing in enumerate(groups.listings()):
        described = groups.describe(listing.group)
        if described is not None:  # gone, since others had a turn
            to.add(catalogue.GROUP_MEMBERS, (listing.group,), len(described.members))
            to.add(catalogue.GROUP_STATE, (listing.group, listing.type.value, listing.state), 1)
        if turn % SERIES_PER_TURN == 0:
            await asyncio.sleep(0)

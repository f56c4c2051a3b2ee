"""What a long queue costs Millpond in memory: millions of messages, and a first one that nobody ever finishes.

Everything behind it is received and acknowledged; what is kept then should be as small as before. Files that are mapped
do not count.
"""

from typing import Final

import uvloop

from bench.broker.driving import ANSWER_SECONDS_MAX
from bench.broker.figures import Durability
from bench.broker.kafka_wire import producing
from bench.broker.millpond import RunningMillpond
from bench.broker.processes import NotReady
from bench.measuring import Row, Target
from bench.queues.flowing import ConversationSender
from bench.queues.millpond import GROUP, ShareReceiver, connect
from bench.workspace import Workspace
from millpond.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC: Final = "backlog"
BATCH: Final = 5_000
SENT_AT_ONCE: Final = 4
LOCK_MS: Final = 3_600_000
MORE_MB_MAX: Final = 64.0
"""Whatever the backlog: a few buffers, and nothing for each message."""
MICROSECONDS_MAX: Final = 20.0
"""50,000 messages/s on one core."""
_GROUP_RESOURCE = 32


def measure(place: Workspace, *, messages: int) -> list[Row]:
    with place.directory() as directory:
        server = RunningMillpond(directory)
        try:
            server.process.wait_for(lambda: server.make_queue(TOPIC, Durability.SYNCED))
            return uvloop.run(_measure(server, messages))
        finally:
            server.stop()


async def _measure(server: RunningMillpond, messages: int) -> list[Row]:
    await _lengthen_leases(server.port)
    slow = await ShareReceiver.open(server.port, TOPIC, "slow", at_once=1)
    quick = await ShareReceiver.open(server.port, TOPIC, "quick", at_once=BATCH)
    sender = await ConversationSender.open(producing(server.port, TOPIC, records=BATCH), request_messages=BATCH)
    idle = server.process.anonymous_bytes()
    for _ in range(messages // (BATCH * SENT_AT_ONCE)):
        await sender.send(BATCH * SENT_AT_ONCE)
    waiting = server.process.anonymous_bytes()
    while not slow.held:
        await slow.fetch()
    began = server.process.cpu_seconds()
    done = most = 0
    while done < messages - 1:
        done += await quick.fetch()
        most = max(most, server.process.anonymous_bytes())
    spent = server.process.cpu_seconds() - began
    for each in (slow, quick, sender):
        each.close()
    section = f"{messages:,} messages, the first one never finished"
    little, quick_enough = Target("value", most=MORE_MB_MAX), Target("value", most=MICROSECONDS_MAX)
    facts: tuple[tuple[str, float, str, Target | None], ...] = (
        ("memory before", idle / 1e6, "MB", None),
        ("more with the backlog", (waiting - idle) / 1e6, "MB", little),
        ("more while it is worked off, at most", (most - idle) / 1e6, "MB", little),
        ("CPU of the broker a message, received and acknowledged", spent / done * 1e6, "µs", quick_enough),
    )
    return [
        Row(section=section, name=name, value=value, unit=unit, target=target) for name, value, unit, target in facts
    ]


async def _lengthen_leases(port: int) -> None:
    setting = AlterableConfig(name="share.record.lock.duration.ms", config_operation=0, value=str(LOCK_MS))
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=GROUP, configs=[setting])
    connection = await connect(port)
    answer = await connection.ask(
        IncrementalAlterConfigsRequest(resources=[resource]),
        IncrementalAlterConfigsResponse,
        seconds_max=ANSWER_SECONDS_MAX,
    )
    connection.close()
    if answer.responses[0].error_code:
        raise NotReady(str(answer.responses[0].error_message))

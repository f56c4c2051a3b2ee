"""Those whose queues are measured: how each is started, and how one sends to a queue of it and receives from it.

What is sent is on disk before it is confirmed where `synced` says so. What an acknowledgement is worth differs:
Millpond and Redis answer it when it is on disk as well; NATS answers it, and writes a moment later; RabbitMQ does not
answer it, and writes with its next sync.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from bench.broker.figures import Durability
from bench.broker.kafka_wire import producing
from bench.broker.millpond import Millpond
from bench.broker.peers.nats import Nats
from bench.broker.peers.rabbitmq import RabbitMQ
from bench.broker.peers.redis import Redis
from bench.broker.systems import Running, System
from bench.queues.confluent import ConfluentReceiver
from bench.queues.flowing import ConversationSender, Receiver, Sender
from bench.queues.millpond import ShareReceiver
from bench.queues.nats import NatsReceiver, make_work_queue
from bench.queues.one_by_one import SingleReceiver
from bench.queues.rabbitmq import RabbitReceiver
from bench.queues.redis import RedisReceiver, make_group

CONFLUENT: Final = "confluent-kafka"
WAITING: Final = "acknowledgements waited for"


@dataclass(frozen=True, slots=True)
class Place:
    """One queue of one server, and how many messages go to it and from it at once."""

    server: Running
    queue: str
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSystem:
    system: System
    durability: Durability
    setting: str
    make: Callable[[Running, str, Durability], None]
    send: Callable[[Place, Durability], Awaitable[Sender]]
    receive: Callable[[Place, int], Awaitable[Receiver]]
    """For the consumer of that number."""
    client: str = ""
    """Of those who receive, where it is not the bench's own, or goes another way."""
    is_batched: bool | None = None
    """Whether it is measured only in batches, or only one by one; None: both."""


def _make(server: Running, queue: str, durability: Durability) -> None:
    server.make_queue(queue, durability)


async def _send(place: Place, durability: Durability) -> Sender:
    return await ConversationSender.open(place.server.publisher(place.queue, durability))


# Millpond


async def _send_to_millpond(place: Place, durability: Durability) -> Sender:
    conversation = producing(place.server.port, place.queue, records=place.at_once)
    return await ConversationSender.open(conversation, request_messages=place.at_once)


async def _share(place: Place, number: int) -> Receiver:
    member = f"member-{number}"
    if place.at_once == 1:
        return await SingleReceiver.open(place.server.port, place.queue, member)
    return await ShareReceiver.open(place.server.port, place.queue, member, at_once=place.at_once)


async def _share_and_wait(place: Place, number: int) -> Receiver:
    member = f"member-{number}"
    return await ShareReceiver.open(place.server.port, place.queue, member, at_once=place.at_once, waits=True)


async def _share_by_confluent(place: Place, number: int) -> Receiver:
    receiver = ConfluentReceiver(place.server.port, place.queue, at_once=place.at_once)
    await receiver.join()
    return receiver


# Redis


def _make_in_redis(server: Running, queue: str, durability: Durability) -> None:
    server.make_queue(queue, durability)
    make_group(server.port, queue)


async def _receive_from_redis(place: Place, number: int) -> Receiver:
    return await RedisReceiver.open(place.server.port, place.queue, f"member-{number}", at_once=place.at_once)


# NATS


def _make_in_nats(server: Running, queue: str, durability: Durability) -> None:
    make_work_queue(server.port, queue)


async def _receive_from_nats(place: Place, number: int) -> Receiver:
    return await NatsReceiver.open(place.server.port, place.queue, at_once=place.at_once)


# RabbitMQ


async def _receive_from_rabbitmq(place: Place, number: int) -> Receiver:
    return await RabbitReceiver.open(place.server.port, place.queue, at_once=place.at_once)


def ours() -> list[QueueSystem]:
    shared = QueueSystem(
        system=Millpond(),
        durability=Durability.SYNCED,
        setting="millpond.flush=group; acknowledgements synced before their answer",
        make=_make,
        send=_send_to_millpond,
        receive=_share,
    )
    return [
        shared,
        replace(shared, receive=_share_and_wait, client=WAITING, is_batched=False),
        replace(shared, receive=_share_by_confluent, client=CONFLUENT, is_batched=True),
    ]


def _nats(durability: Durability) -> QueueSystem:
    system = Nats(durability)
    return QueueSystem(
        system=system,
        durability=durability,
        setting=f"work queue, {system.durabilities[durability]}; acknowledgements answered, synced later",
        make=_make_in_nats,
        send=_send,
        receive=_receive_from_nats,
    )


def _redis(durability: Durability) -> QueueSystem:
    return QueueSystem(
        system=Redis(),
        durability=durability,
        setting=f"{Redis.durabilities[durability]}, acknowledgements too",
        make=_make_in_redis,
        send=_send,
        receive=_receive_from_redis,
    )


def _rabbitmq() -> QueueSystem:
    return QueueSystem(
        system=RabbitMQ(),
        durability=Durability.SYNCED,
        setting="quorum queue of one; acknowledgements not answered",
        make=_make,
        send=_send,
        receive=_receive_from_rabbitmq,
    )


PEERS: dict[str, Callable[[], list[QueueSystem]]] = {
    "rabbitmq": lambda: [_rabbitmq()],
    "nats": lambda: [_nats(Durability.SYNCED), _nats(Durability.NOT_SYNCED)],
    "redis": lambda: [_redis(Durability.SYNCED), _redis(Durability.NOT_SYNCED)],
}

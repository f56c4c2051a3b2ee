"""Other brokers, by the name they are chosen with. `python -m bench.broker.peers` fetches them."""

from collections.abc import Callable

from bench.broker.figures import Durability
from bench.broker.peers.kafka import Kafka
from bench.broker.peers.nats import Nats
from bench.broker.peers.rabbitmq import RabbitMQ
from bench.broker.peers.redis import Redis
from bench.broker.systems import System

PEERS: dict[str, Callable[[], list[System]]] = {
    "kafka": lambda: [Kafka()],
    "redis": lambda: [Redis()],
    "nats": lambda: [Nats(Durability.SYNCED), Nats(Durability.NOT_SYNCED)],
    "rabbitmq": lambda: [RabbitMQ()],
}

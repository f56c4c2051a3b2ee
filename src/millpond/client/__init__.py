"""Millpond's client for asyncio; for programs without a loop, see `millpond.client.blocking`.

async with Producer("localhost:9092") as producer:
    await producer.send("orders", b"one coffee", key=b"table 4")
"""

from millpond.client.admin import Admin
from millpond.client.consumer import Consumer
from millpond.client.delivery import Delivery
from millpond.client.interceptors import Outgoing
from millpond.client.messages import Message, RecordMetadata, Written
from millpond.client.producer import Producer
from millpond.client.queue import Queue, QueueMessage
from millpond.model.ids import TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "Delivery",
    "Message",
    "Outgoing",
    "Producer",
    "Queue",
    "QueueMessage",
    "RecordMetadata",
    "TopicPartition",
    "Written",
]

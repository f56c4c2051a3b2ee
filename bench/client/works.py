"""What is measured of clients, and of which: names, without the clients themselves, which take long to load."""

from typing import Final

SEND_MANY, SEND, ITERATE, POLL = "send many", "send one by one", "read one by one", "read in batches"
WORKS: Final = (SEND_MANY, SEND, ITERATE, POLL)

MILLPOND, CONFLUENT, AIOKAFKA, KAFKA_PYTHON = "millpond", "confluent-kafka", "aiokafka", "kafka-python"
PEERS: Final = (CONFLUENT, AIOKAFKA, KAFKA_PYTHON)

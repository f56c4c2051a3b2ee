"""Which brokers clients are told of: those that live, and those that went so lately that they may soon be back.

A client that is told of a broker no more gives up all it has of it; librdkafka (since 2.10) then sometimes waits for
ever for a coordinator that was there. Kafka leaves out a broker when its session is over, some nine seconds after it
went. Here a process that has ended is noticed at once (absences.py), and every restart would make every client forget
it. Who is told of a broker that is gone is refused there, and asks another.

Driven by the metadata log through `follow`, and by the handler of Metadata.
"""

from millpond.core.metadata.image import Broker, Image
from millpond.model.ports import Clock

BACK_SOON_MS = 60_000
"""A restart is over by then."""


class ListedBrokers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone_at_ms: dict[int, int] = {}

    def follow(self, before: Image, after: Image) -> None:
        if before.brokers is after.brokers:
            return
        for broker in after.brokers:
            if after.is_live(broker):
                self._gone_at_ms.pop(broker, None)
            elif before.is_live(broker):
                self._gone_at_ms[broker] = self._clock.monotonic_ms()

    def of(self, image: Image) -> list[Broker]:
        """Who has been unregistered is not among them, however lately."""
        if not self._gone_at_ms:
            return image.live_brokers()
        since_ms = self._clock.monotonic_ms() - BACK_SOON_MS
        return [
            broker
            for number, broker in sorted(image.brokers.items())
            if not broker.fenced or self._gone_at_ms.get(number, since_ms) > since_ms
        ]

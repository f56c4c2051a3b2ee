"""Interceptors against a real broker: what they change arrives, what they see is so, the documented one installs."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from millpond.client import Consumer, Message, Outgoing, Producer, RecordMetadata, TopicPartition
from millpond.client.interceptors import Interceptors
from millpond.model.errors import BatchTooLarge, InvalidSetting, MillpondError, WrongUse
from millpond.model.ids import Offset
from millpond.testing.broker import InProcessBroker
from tests.client.conftest import run
from tests.client.reading import read_all

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python-client.md"


class Watch:
    """Changes every message, and remembers what it is told."""

    def __init__(self, mark: str = "seen") -> None:
        self.mark = mark
        self.kept: list[RecordMetadata] = []
        self.failed: list[tuple[Outgoing, MillpondError]] = []
        self.commits: list[dict[TopicPartition, int]] = []

    def on_send(self, message: Outgoing) -> Outgoing:
        return message._replace(headers=(*message.headers, (self.mark, b"1")))

    def on_acknowledged(self, where: RecordMetadata) -> None:
        self.kept.append(where)

    def on_failed(self, message: Outgoing, error: MillpondError) -> None:
        self.failed.append((message, error))

    def on_receive(self, message: Message) -> Message:
        return message._replace(value=(message.value or b"").upper())

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits.append(dict(offsets))


def test_what_an_interceptor_does_on_the_way_in_is_kept(broker: InProcessBroker) -> None:
    broker.create_topic("orders", configs={"max.message.bytes": "1000"})
    watch = Watch()

    async def scenario() -> None:
        async with Producer(broker.bootstrap, interceptors=[watch, Watch("twice")]) as producer:
            await producer.send("orders", b"one", headers={"own": b"0"})
            written = await producer.send_many("orders", [b"two", b"three"], keys=[b"a", None])
            assert [(each.offset, each.count) for each in written] == [(1, 1), (2, 1)]
            with pytest.raises(BatchTooLarge):
                await producer.send("orders", b"x" * 2_000)

    run(scenario())
    kept = read_all(broker, "orders")[0]
    assert [each.value for each in kept] == [b"one", b"two", b"three"]
    assert kept[0].headers == (("own", b"0"), ("seen", b"1"), ("twice", b"1"))
    assert [each.key for each in kept] == [None, b"a", None]
    assert [each.offset for each in watch.kept] == [0, 1, 2]
    ((message, error),) = watch.failed
    assert (len(message.value or b""), type(error)) == (2_000, BatchTooLarge)


def test_what_an_interceptor_does_on_the_way_out_is_what_the_application_has(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    watch = Watch()
    at = TopicPartition("orders", 0)

    async def scenario() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many("orders", [b"a", b"b", b"c", b"d"])
        async with Consumer(broker.bootstrap, topics=["orders"], group="g", interceptors=[watch]) as consumer:
            assert (await anext(consumer)).value == b"A"
            assert (await anext(consumer)).value == b"B"
            await consumer.commit()
            assert [each.value for each in await consumer.poll()] == [b"C", b"D"]

    run(scenario())
    assert watch.commits == [{at: 2}, {at: 4}]


def test_a_message_that_an_interceptor_stumbles_over_comes_again(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    class Stumble:
        fell = 0

        def on_receive(self, message: Message) -> Message:
            if message.offset == 2 and self.fell < 2:
                self.fell += 1
                raise ValueError("two")
            return message

    async def scenario() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many("orders", [b"%d" % number for number in range(4)])
        async with Consumer(broker.bootstrap, topics=["orders"], interceptors=[Stumble()]) as consumer:
            with pytest.raises(ValueError, match="two"):
                await consumer.poll(timeout=30)
            seen = [(await anext(consumer)).offset for _ in range(2)]
            with pytest.raises(ValueError, match="two"):
                await anext(consumer)
            seen += [each.offset for each in await consumer.poll(timeout=30)]
            assert seen == [0, 1, 2, 3]

    run(scenario())


def test_one_that_raises_when_it_is_told_does_no_harm(broker: InProcessBroker) -> None:
    class Raises:
        def on_acknowledged(self, where: RecordMetadata) -> None:
            raise ValueError("told")

        def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
            raise ValueError("committed")

    told: list[object] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        async with Producer(broker.bootstrap, interceptors=[Raises()]) as producer:
            assert (await producer.send("orders", b"kept")).offset == 0
            assert (await producer.send("orders", b"kept")).offset == 1
        async with Consumer(broker.bootstrap, topics=["orders"], group="g", interceptors=[Raises()]) as consumer:
            await consumer.poll(timeout=30)
            await consumer.commit()
            assert await consumer.committed() == {TopicPartition("orders", 0): 2}

    run(scenario())
    assert [str(each) for each in told] == ["told", "told", "committed"]


def test_what_is_no_interceptor_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="has object, which has none of the methods on_send"):
        Interceptors([object()])
    with pytest.raises(InvalidSetting, match="no installed package offers it"):
        Interceptors(["nobody's"])

    class Forgets:
        def on_send(self, message: Outgoing) -> None: ...
        def on_receive(self, message: Message) -> Message:
            return message._replace(offset=Offset(message.offset + 1))

    with pytest.raises(WrongUse, match="on_send returned NoneType"):
        Interceptors([Forgets()]).send(Outgoing("t", b""))
    with pytest.raises(WrongUse, match="offset it had"):
        Interceptors([Forgets()]).receive(Message(0, 0, None, b"", (), "t", 0))  # type: ignore[arg-type]


def test_the_one_in_the_guide_is_installed_and_found_by_its_name(
    broker: InProcessBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (module,) = re.findall(r"```python\n(# till\.py\n.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    (entry_point,) = re.findall(r"^till = \"(till:\w+)\"$", GUIDE.read_text(), flags=re.MULTILINE)
    info = tmp_path / "till-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: till\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[millpond.interceptors]\ntill = {entry_point}\n")
    (tmp_path / "till.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario() -> None:
        async with Producer(broker.bootstrap, interceptors=["till"]) as producer:
            await producer.send("orders", b"one coffee")

    run(scenario())
    assert read_all(broker, "orders")[0][0].headers == (("sent-by", b"till 3"),)

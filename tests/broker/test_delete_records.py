"""What becomes of a delete of records when the partition goes meanwhile."""

import asyncio

import pytest

from millpond.broker.drivers.partition import Partition
from millpond.broker.operations.delete_records import HIGH_WATERMARK, delete_records
from millpond.core.metadata.controller import TopicToDelete, delete_topics
from millpond.model.errors import NotLeader
from tests.broker.clusters import Machine
from tests.broker.test_queue_partition import append, on_a_broker


def test_a_topic_that_is_deleted_while_records_of_it_are_is_no_fault_of_the_disk() -> None:
    async def scenario(machine: Machine, partition: Partition) -> None:
        assert machine.broker is not None
        await append(machine, partition, count=3)
        async with partition.log.commit.turn:  # the delete has to wait for it, until nothing is left
            deleting = asyncio.get_running_loop().create_task(delete_records(partition, HIGH_WATERMARK))
            await asyncio.sleep(1)
            jobs = [TopicToDelete(name="jobs")]
            await machine.broker.node.metadata.decide(lambda image: delete_topics(image, jobs, static={}))
            await asyncio.sleep(1)
            assert partition.log.is_closed
        with pytest.raises(NotLeader, match="deleted meanwhile"):
            await deleting

    on_a_broker(scenario)

"""Who is in sync, as leaders ask for it, and who stays eligible."""

from dataclasses import replace

import pytest

from millpond.core.metadata.agreed import agree, insync_min
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, ConfigOperation, alter_configs
from millpond.core.metadata.commands import ALL_BROKERS, NO_LEADER, BeginShutdown
from millpond.core.metadata.image import apply
from millpond.core.metadata.replicas import IsrAsked, IsrChanged, change_isr
from millpond.model.ids import LeaderEpoch
from tests.core.metadata.clusters import STATIC, after
from tests.core.metadata.replicated import AT, OTHER_DISK, asked, back, code, dead, in_sync, partition, topic_on


def test_the_leader_changes_who_is_in_sync_and_the_partition_epoch_goes_up() -> None:
    image = topic_on(1, 2, 3)
    decision = change_isr(image, asked(image, 3, 1))
    assert decision.answers == (IsrChanged((1, 3), 1),)
    image = after(image, decision.commands)
    assert (partition(image).isr, partition(image).leader_epoch, partition(image).partition_epoch) == ((1, 3), 0, 1)
    again = in_sync(image, 1, 3)
    assert partition(again).partition_epoch == 2, "asking for what is so already makes earlier questions void"


ASKED = asked(topic_on(1, 2, 3), 1, 2)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (replace(ASKED, topic_id=bytes(16)), 100),
        (replace(ASKED, partition=1), 3),
        (replace(ASKED, partition=-1), 3),
        (replace(ASKED, leader=2), 42),
        (replace(ASKED, leader_epoch=LeaderEpoch(1)), 75),
        (replace(ASKED, partition_epoch=1), 95),
        (replace(ASKED, partition_epoch=-1), 95),
        (replace(ASKED, isr=()), 42),
        (replace(ASKED, isr=ASKED.isr[1:]), 42),
        (replace(ASKED, isr=(*ASKED.isr, (4, 7))), 42),
        (replace(ASKED, isr=(*ASKED.isr, ASKED.isr[0])), 42),
        (replace(ASKED, isr=(ASKED.isr[0], (2, ASKED.isr[1][1] - 1))), 107),
        (replace(ASKED, isr=(ASKED.isr[0], (2, ASKED.isr[1][1] + 1))), 107),
    ],
    ids=str,
)
def test_refusals_are_kafkas(request_: IsrAsked, expected: int) -> None:
    image = topic_on(1, 2, 3)
    # Ids are drawn alike each time, so the question fits this image but for what is wrong with it.
    assert image.topics["t"].topic_id == ASKED.topic_id
    assert code(change_isr(image, request_)) == expected


def test_a_leader_of_an_earlier_epoch_changes_nothing() -> None:
    image = topic_on(1, 2, 3)
    question = asked(image, 1, 2)
    assert code(change_isr(dead(image, 1), question)) == 74


def test_nobody_comes_in_who_is_down_or_going_down() -> None:
    image = dead(topic_on(1, 2, 3), 2)
    assert code(change_isr(image, asked(image, 1, 2, 3))) == 107
    image = apply(BeginShutdown(broker=2), back(image, 2))
    assert code(change_isr(image, asked(image, 1, 2, 3))) == 107
    leaving = apply(BeginShutdown(broker=1), back(image, 2))
    assert partition(in_sync(leaving, 1, 2, 3)).isr == (1, 2, 3), "a leader that goes lets others in to take over"


def test_who_leaves_while_too_few_are_in_sync_stays_eligible() -> None:
    image = topic_on(1, 2, 3, insync_min=2)
    image = in_sync(image, 1, 2)
    assert partition(image).elr == (), "enough are in sync: the high watermark goes on without it"
    image = in_sync(image, 1)
    assert partition(image).elr == (2,)
    image = dead(image, 1)
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (2, (2,), (1,))


def test_nobody_is_eligible_any_more_once_enough_are_in_sync() -> None:
    image = in_sync(topic_on(1, 2, 3, insync_min=2), 1)
    assert partition(image).elr == (2, 3)
    image = in_sync(image, 1, 3)
    assert (partition(image).isr, partition(image).elr) == ((1, 3), ())


def test_a_lost_disk_ends_eligibility_and_leadership() -> None:
    image = in_sync(topic_on(1, 2, 3, insync_min=2), 1)
    image = back(image, 2, OTHER_DISK)
    assert partition(image).elr == (3,)
    image = back(image, 1, OTHER_DISK)
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (3, (3,), ())


def test_when_every_complete_copy_is_lost_nobody_leads() -> None:
    image = back(topic_on(1), 1, OTHER_DISK)
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (NO_LEADER, (), ())
    image = back(image, 1, OTHER_DISK)
    assert partition(image).leader == NO_LEADER


def test_asking_for_fewer_in_sync_ends_eligibility_in_the_same_decision() -> None:
    image = in_sync(topic_on(1, 2, 3, insync_min=2), 1)
    lower = AlterConfigs(target="t", items=(ConfigItem("min.insync.replicas", "1"),))
    decision = alter_configs(image, [lower], static=STATIC)
    assert partition(after(image, decision.commands)).elr == ()
    other = AlterConfigs(target="t", items=(ConfigItem("retention.ms", "1"),))
    decision = alter_configs(image, [other], static=STATIC)
    assert partition(after(image, decision.commands)).elr == (2, 3)


def test_how_many_must_be_in_sync_is_the_same_for_all_brokers() -> None:
    image = topic_on(1, 2, 3)
    own = AlterConfigs(target=1, items=(ConfigItem("min.insync.replicas", "2"),))
    assert code(alter_configs(image, [own], static=STATIC)) == 40
    everywhere = AlterConfigs(target=ALL_BROKERS, items=(ConfigItem("min.insync.replicas", "2"),))
    unset = AlterConfigs(target="t", items=(ConfigItem("min.insync.replicas", None, ConfigOperation.DELETE),))
    image = after(image, alter_configs(image, [everywhere, unset], static=STATIC).commands)
    assert insync_min(image, image.topics["t"], partition(image)) == 2
    alone = topic_on(1, insync_min=3)
    assert insync_min(alone, alone.topics["t"], partition(alone)) == 1, "never more than there are"


def test_the_first_brokers_own_setting_becomes_the_clusters() -> None:
    image = topic_on(1, 2, 3)
    image = after(image, agree(image, {"min.insync.replicas": "2", "num.partitions": "9"}))
    assert image.configs_of_broker(ALL_BROKERS) == {"min.insync.replicas": "2"}
    assert agree(image, {"min.insync.replicas": "3"}) == ()
    assert agree(image, {}) == ()
    assert image.partition(AT) is not None

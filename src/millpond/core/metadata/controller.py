"""Deciding on topics: create, delete, grow, make on demand; and handing out producer ids.

Each topic of a request is decided for itself and answered in turn; what was accepted for one is seen by those after it.
Invariant: commands are only returned for what was checked against the image, so that applying them cannot fail,
provided that nothing else was applied in between. `static` is the broker's settings, checked by
`broker_configs.check_static`. Pure; chance is an argument. Driven by broker/drivers/metadata.py, which decides, logs
and applies one request at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from millpond.core.metadata.broker_configs import layers, value_of
from millpond.core.metadata.commands import (
    PARTITIONS_PER_COMMAND_MAX,
    REPLICAS_PER_PARTITION_MAX,
    AddPartitions,
    AllocateProducerIds,
    Command,
    CreateTopic,
    DeleteTopic,
    Replicas,
)
from millpond.core.metadata.configs import ConfigEntry, describe_topic
from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.image import Image, Topic, apply
from millpond.core.metadata.internal_topics import INTERNAL, RESERVED, InternalTopic, folded
from millpond.core.metadata.placement import begin_without_those_away, place_new
from millpond.core.metadata.topic_configs import check_together, check_topic_configs, effective
from millpond.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidSetting,
    InvalidTopicName,
    PolicyViolation,
    RequestError,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millpond.model.ids import ProducerId, topic_id_text
from millpond.model.limits import PARTITIONS_PER_TOPIC_MAX
from millpond.model.ports import Rng
from millpond.model.topic_names import check_topic_name
from millpond.model.values import dataclass

UNSPECIFIED = -1
"""In place of a number of partitions or replicas: the broker's default, or as the assignments say."""

NO_TOPIC_ID = bytes(16)
PRODUCER_IDS_PER_BLOCK = 1000
PARTITIONS_PER_REQUEST_MAX = PARTITIONS_PER_COMMAND_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partitions: int = UNSPECIFIED
    replication_factor: int = UNSPECIFIED
    assignments: tuple[tuple[int, Replicas], ...] = ()
    """Partition numbers and their replicas; given instead of the two numbers."""

    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: tuple[ConfigEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToDelete:
    """By name or by id, not both."""

    name: str | None = None
    topic_id: bytes = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    name: str
    count: int
    """How many the topic shall have, not how many come."""

    assignments: tuple[Replicas, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    name: str
    count: int


def create_topics(
    image: Image, requests: Sequence[NewTopic], *, static: Mapping[str, str], rng: Rng, validate_only: bool = False
) -> Decision[Created]:
    """On a client's behalf: names of internal topics are not for it."""
    return _create_each(image, requests, static=static, rng=rng, validate_only=validate_only, reserved=RESERVED)


def auto_create(image: Image, names: Iterable[str], *, static: Mapping[str, str], rng: Rng) -> Decision[Created]:
    """When a client names topics that are not there: with the broker's defaults, internal ones as they must be."""
    allowed = value_of("auto.create.topics.enable", static) is True
    wanted: list[NewTopic] = []
    unknown: dict[str, Refused] = {}
    asked = list(dict.fromkeys(names))
    for name in asked:
        if name in INTERNAL:
            wanted.append(_internal_topic(name, INTERNAL[name], static, brokers=len(image.brokers)))
        elif allowed:
            wanted.append(NewTopic(name=name))
        else:
            error = UnknownTopicOrPartition(
                f"there is no topic {name[:80]!r}, and auto.create.topics.enable is false; create it first"
            )
            unknown[name] = Refused(name, error)
    decision = _create_each(
        image, wanted, static=static, rng=rng, validate_only=False, reserved=RESERVED - INTERNAL.keys()
    )
    made = dict(zip((topic.name for topic in wanted), decision.answers, strict=True))
    return Decision(decision.commands, tuple(unknown.get(name) or made[name] for name in asked))


def delete_topics(image: Image, requests: Sequence[TopicToDelete], *, static: Mapping[str, str]) -> Decision[Deleted]:
    enabled = value_of("delete.topic.enable", static) is True
    commands: list[Command] = []
    answers: list[Deleted | Refused] = []
    found = [_find(image, request) for request in requests]
    times = Counter(each.topic_id for each in found if isinstance(each, Topic))
    for request, topic in zip(requests, found, strict=True):
        subject = request.name if request.name is not None else topic_id_text(request.topic_id)
        try:
            if isinstance(topic, RequestError):
                raise topic
            _check_deletable(topic, enabled=enabled, times=times[topic.topic_id])
        except RequestError as error:
            answers.append(Refused(subject, error))
        else:
            commands.append(DeleteTopic(topic_id=topic.topic_id))
            answers.append(Deleted(name=topic.name, topic_id=topic.topic_id))
    return Decision(tuple(commands), tuple(answers))


def create_partitions(
    image: Image, requests: Sequence[MorePartitions], *, rng: Rng, validate_only: bool = False
) -> Decision[Grown]:
    commands: list[Command] = []
    answers: list[Grown | Refused] = []
    times = Counter(request.name for request in requests)
    budget = PARTITIONS_PER_REQUEST_MAX
    for request in requests:
        try:
            _check_once(request.name, times)
            command = _grow(image, request, rng=rng, budget=budget)
        except RequestError as error:
            answers.append(Refused(request.name, error))
        else:
            budget -= len(command.partitions)
            grown = apply(command, image)
            first = len(image.topics[request.name].partitions)
            commands += [command, *begin_without_those_away(grown, grown.topics[request.name], since=first)]
            answers.append(Grown(name=request.name, count=request.count))
    return Decision(() if validate_only else tuple(commands), tuple(answers))


def allocate_producer_ids(image: Image) -> tuple[AllocateProducerIds, range]:
    """The next block. A broker hands out ids from it, and only from it, once the command is kept."""
    first = image.producer_ids_end
    end = first + PRODUCER_IDS_PER_BLOCK
    assert end < 2**63, "all producer ids are used up"
    return AllocateProducerIds(end=end), range(ProducerId(first), end)


def _create_each(
    image: Image,
    requests: Sequence[NewTopic],
    *,
    static: Mapping[str, str],
    rng: Rng,
    validate_only: bool,
    reserved: frozenset[str],
) -> Decision[Created]:
    commands: list[Command] = []
    answers: list[Created | Refused] = []
    times = Counter(request.name for request in requests)
    broker = layers(image, static)
    budget = PARTITIONS_PER_REQUEST_MAX
    for request in requests:
        try:
            _check_once(request.name, times)
            _check_new_name(image, request.name, reserved)
            configs = _checked_configs(request.configs, broker.merged())
            partitions = _assigned(image, request, static=static, rng=rng, budget=budget)
        except RequestError as error:
            answers.append(Refused(request.name, error))
            continue
        budget -= len(partitions)
        topic_id = _new_topic_id(image, rng)
        pairs = tuple(sorted(configs.items()))
        command = CreateTopic(name=request.name, topic_id=topic_id, partitions=partitions, configs=pairs)
        image = apply(command, image)
        commands += [command, *begin_without_those_away(image, image.topics[request.name])]
        answers.append(
            Created(
                name=request.name,
                topic_id=NO_TOPIC_ID if validate_only else topic_id,
                partitions=len(partitions),
                replication_factor=len(partitions[0]),
                configs=describe_topic(configs, broker),
            )
        )
    return Decision(() if validate_only else tuple(commands), tuple(answers))


def _internal_topic(name: str, internal: InternalTopic, static: Mapping[str, str], *, brokers: int) -> NewTopic:
    partitions = value_of(internal.partitions_setting, static)
    replication = value_of(internal.replication_setting, static)
    assert isinstance(partitions, int)
    assert isinstance(replication, int)
    # A young cluster must be able to commit offsets: it starts with the replicas it can have.
    return NewTopic(
        name=name,
        partitions=partitions,
        replication_factor=max(1, min(replication, brokers)),
        configs=internal.configs,
    )


def _check_once(name: str, times: Counter[str]) -> None:
    if times[name] > 1:
        raise InvalidRequest(f"topic {name[:80]!r} is named {times[name]} times in one request; name it once")


def _check_new_name(image: Image, name: str, reserved: frozenset[str]) -> None:
    check_topic_name(name)
    if name in image.topics:
        raise TopicAlreadyExists(f"topic {name!r} exists already; choose another name, or delete it first")
    if name in reserved:
        raise PolicyViolation(f"topic {name!r} is one of Millpond's own, made when it is needed; choose another name")
    holder = image.names_folded.get(folded(name))
    if holder is not None:
        raise InvalidTopicName(
            f"topic {name!r} differs from topic {holder!r} only in '.' and '_', which metrics do not tell apart; "
            "choose another name"
        )


def _checked_configs(given: tuple[tuple[str, str | None], ...], defaults: Mapping[str, str]) -> dict[str, str]:
    times = Counter(name for name, _ in given)
    configs: dict[str, str] = {}
    for name, value in given:
        if times[name] > 1:
            raise InvalidRequest(f"{name[:80]!r} is set {times[name]} times; set it once")
        if value is None:
            raise InvalidSetting(f"{name[:80]!r} has no value; give one, or leave it out for the default")
        configs[name] = value
    check_topic_configs(configs)
    check_together(effective(configs, defaults))
    return configs


def _assigned(
    image: Image, request: NewTopic, *, static: Mapping[str, str], rng: Rng, budget: int
) -> tuple[Replicas, ...]:
    if request.assignments:
        return _by_hand(image, request, budget=budget)
    partitions = _number(request.partitions, "num.partitions", static)
    if partitions < 1:
        raise InvalidPartitions(
            f"topic {request.name!r} with {partitions} partitions; allowed is 1 to {PARTITIONS_PER_TOPIC_MAX}, or "
            f"{UNSPECIFIED} for the broker's default"
        )
    _check_budget(request.name, partitions, budget)
    replication = _number(request.replication_factor, "default.replication.factor", static)
    _check_brokers(image, request.name, replication)
    return place_new(image, partitions=partitions, replication=replication, rng=rng)


def _check_brokers(image: Image, name: str, replication: int) -> None:
    """Of those that it takes, some may be away, but not all."""
    if not 1 <= replication <= min(len(image.brokers), REPLICAS_PER_PARTITION_MAX) or not image.staying_brokers():
        raise InvalidReplicationFactor(
            f"topic {name!r} with {replication} replicas; allowed is 1 to the number of brokers, which is "
            f"{len(image.brokers)} with {len(image.staying_brokers())} of them up, and at most "
            f"{REPLICAS_PER_PARTITION_MAX}"
        )


def _number(asked: int, setting: str, static: Mapping[str, str]) -> int:
    value = value_of(setting, static) if asked == UNSPECIFIED else asked
    assert isinstance(value, int)
    return value


def _by_hand(image: Image, request: NewTopic, *, budget: int) -> tuple[Replicas, ...]:
    if request.partitions != UNSPECIFIED or request.replication_factor != UNSPECIFIED:
        raise InvalidRequest(
            f"topic {request.name!r} has assignments and also {request.partitions} partitions and "
            f"{request.replication_factor} replicas; with assignments both must be {UNSPECIFIED}"
        )
    _check_budget(request.name, len(request.assignments), budget)
    ordered = sorted(request.assignments)
    numbers = [number for number, _ in ordered]
    if numbers != list(range(len(ordered))):
        raise InvalidReplicaAssignment(
            f"topic {request.name!r} has assignments for partitions {numbers[:10]}; allowed are 0 to "
            f"{len(ordered) - 1}, each once"
        )
    assignments = tuple(replicas for _, replicas in ordered)
    _check_assignments(image, request.name, assignments, replication=len(assignments[0]))
    return assignments


def _check_assignments(image: Image, name: str, assignments: tuple[Replicas, ...], *, replication: int) -> None:
    for replicas in assignments:
        if not 1 <= len(replicas) <= REPLICAS_PER_PARTITION_MAX or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(
                f"topic {name!r} has a partition on brokers {list(replicas)[:40]}; allowed are 1 to "
                f"{REPLICAS_PER_PARTITION_MAX}, each once"
            )
        if len(replicas) != replication:
            raise InvalidReplicaAssignment(
                f"topic {name!r} has a partition with {len(replicas)} replicas beside one with {replication}; allowed "
                "is the same number for all"
            )
        strangers = [broker for broker in replicas if not image.is_staying(broker)]
        if strangers:
            live = [broker.broker for broker in image.staying_brokers()]
            raise InvalidReplicaAssignment(f"topic {name!r} has a partition on brokers {strangers}; live are {live}")


def _check_budget(name: str, partitions: int, budget: int) -> None:
    if partitions > budget:
        raise PolicyViolation(
            f"topic {name!r} asks for {partitions} new partitions, and {budget} of the {PARTITIONS_PER_REQUEST_MAX} "
            "that one request may create are left; use several requests"
        )


def _new_topic_id(image: Image, rng: Rng) -> bytes:
    """A random UUID (version 4). Its base64 form never begins with '-', which command lines take for an option."""
    while True:
        number = rng.getrandbits(128)
        number = number & ~(0xF << 76) | (4 << 76)
        number = number & ~(0x3 << 62) | (2 << 62)
        topic_id = number.to_bytes(16, "big")
        if topic_id not in image.topics_by_id and topic_id[0] >> 2 != 62:
            return topic_id


def _find(image: Image, request: TopicToDelete) -> Topic | RequestError:
    by_name, by_id = request.name is not None, request.topic_id != NO_TOPIC_ID
    if by_name == by_id:
        return InvalidRequest(
            "a topic to delete has a name or an id; this one has " + ("both" if by_name else "neither")
        )
    if request.name is not None:
        missing = UnknownTopicOrPartition(f"there is no topic {request.name[:80]!r} to delete")
        return image.topics.get(request.name) or missing
    return image.topics_by_id.get(request.topic_id) or UnknownTopicId(
        f"there is no topic with id {topic_id_text(request.topic_id)}"
    )


def _check_deletable(topic: Topic, *, enabled: bool, times: int) -> None:
    if times > 1:
        raise InvalidRequest(f"topic {topic.name!r} is to be deleted {times} times in one request; name it once")
    if not enabled:
        raise TopicDeletionDisabled(
            f"topic {topic.name!r} stays: delete.topic.enable is false in the broker's settings"
        )
    if topic.internal:
        raise PolicyViolation(
            f"topic {topic.name!r} is one of Millpond's own and stays: groups and transactions need it"
        )


def _grow(image: Image, request: MorePartitions, *, rng: Rng, budget: int) -> AddPartitions:
    topic = image.topics.get(request.name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {request.name[:80]!r}; create it first")
    now = len(topic.partitions)
    if topic.internal:
        raise PolicyViolation(
            f"topic {topic.name!r} is one of Millpond's own and keeps its {now} partitions: what is in them is found "
            "by their number"
        )
    if not now < request.count <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidPartitions(
            f"topic {topic.name!r} has {now} partitions and shall have {request.count}; allowed is {now + 1} to "
            f"{PARTITIONS_PER_TOPIC_MAX}"
        )
    _check_budget(topic.name, request.count - now, budget)
    replication = len(topic.partitions[0].replicas)
    if request.assignments is not None:
        if len(request.assignments) != request.count - now:
            raise InvalidReplicaAssignment(
                f"topic {topic.name!r} grows by {request.count - now} partitions with assignments for "
                f"{len(request.assignments)}; allowed is one for each"
            )
        _check_assignments(image, topic.name, request.assignments, replication=replication)
        return AddPartitions(topic_id=topic.topic_id, partitions=request.assignments)
    _check_brokers(image, topic.name, replication)
    partitions = place_new(image, partitions=request.count - now, replication=replication, rng=rng)
    return AddPartitions(topic_id=topic.topic_id, partitions=partitions)

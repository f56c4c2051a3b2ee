"""Where Millpond answers otherwise than Kafka on purpose: which answers, and why. docs/clients.md says the same."""

import re

_START = "where the log starts is said beside a success only"
_PROTOCOL = "a group with members keeps its protocol"
_BROKEN = "no client sends it; it is refused as what it is"
_HELD = "a broker does not look inside batches that it need not look into"
_KEYS = "a setting that would promise what is not done, or that only Millpond has"
_DEFAULTS = "the default that holds, by its name; in Kafka it is that of another setting"
_GONE = "a group without members and offsets is forgotten at once"
_AGAIN = "told to join again, a client does; told that there is no such group, Java's gives up"
_ANEW = "a member that begins again is let in at once, not when its session is over"

REASONS: tuple[tuple[str, str, str], ...] = (
    ("batches", "magic|negative length|unknown codec|transactional", _BROKEN),
    ("batches", "last offset|negative last|count|negative count|control|producer id", _START),
    ("batches", "base offset|leader epoch|what was kept", "a batch's own base offset is of no use, and not looked at"),
    ("batches", "delete horizon", "only compaction sets a delete horizon"),
    ("broken records", "delete", _HELD),
    ("broken records", "compact", _START),
    ("produce", "empty name", "no topic has it, and it is not sent"),
    ("produce", "a partition twice", "Kafka keeps the last and answers as if it were all; here the request is refused"),
    ("times and keys", ".*", f"words; {_START}"),
    ("producers", "again|the fifth last", "a duplicate's time of append is not remembered"),
    ("producers", "one of long ago", "it is in the log: a client takes DUPLICATE_SEQUENCE_NUMBER for a success"),
    ("producers", "a gap|back|epoch|negative", _START),
    ("administer groups", "coordinator of kind 1", "transactions are not served, and who asks is refused for good"),
    ("producers", "not known yet", "refused once: what comes before it may have been refused before the partition was"),
    ("producers", "unknown here, sequence 5|a sequence near its end", "a duplicate's time of append is not remembered"),
    ("fetch", "negative sizes|isolation nobody knows|an epoch that never was", _BROKEN),
    ("fetch", "committed only", "no list rather than an empty one: there are no transactions"),
    ("create topics", "only asked", "nothing was made that could have an id"),
    ("create partitions", "internal", "more partitions would part groups from their offsets"),
    ("create partitions", "how many", "Kafka answers before it has happened; Millpond after"),
    ("delete topics", "by name and by id", "each is answered as it was named"),
    ("metadata", "made", "Kafka answers before it has happened; Millpond after"),
    ("metadata", "null topic before ids", "no client sends it; the topic is found all the same"),
    ("metadata", "go on at a stranger|negative cursor", _BROKEN),
    ("cluster", "a kind nobody knows|twice", _BROKEN),
    ("cluster", "everywhere", "topics where nothing was done are left out"),
    ("alter configs item by item", "an operation nobody knows", _BROKEN),
    ("alter configs item by item", "compression.zstd.level|follower|local", _KEYS),
    ("alter configs item by item", "retention.bytes=-5", "a number that means nothing"),
    ("alter configs as a whole", ".*retention.ms", _DEFAULTS),
    ("describe configs", ".*(retention.ms|segment|flush|broker.id|min.insync)", _DEFAULTS),
    ("describe configs", ".*(compression|replication|remote|local|streams|downconversion|millpond)", _KEYS),
    ("describe configs", "a group's", "defaults of Millpond's own, under the broker's names for them"),
    ("settings changed under producers", ".*", f"words; {_START}"),
    ("join group", "describe", "what is given out is shown once all have it"),
    ("rebalance", "describe", "what is given out is shown once all have it"),
    ("commit", "unknown group, a member", _AGAIN),
    ("commit", "delete", _GONE),
    ("administer groups", "leave no group", "each member is answered, beside the error"),
    ("consumer heartbeats that are wrong", "epoch", _AGAIN),
    ("consumer heartbeats that are wrong", "pattern only", "Kafka looks patterns up later; Millpond at once"),
    ("consumer groups", "a classic member joins", _PROTOCOL),
    ("consumer groups", "second joins anew", _ANEW),
    ("consumer groups", "nobody is left", "there is one epoch, of group and assignment"),
    ("consumer groups beside classic ones", "joins when it is empty", "the epoch goes on from the generation"),
    ("static members of consumer groups", "joins again", _ANEW),
    ("static members of consumer groups", "describe", "who is away has nothing to reconcile"),
)
"""Scene, a pattern that the label matches from its start, and the reason."""


def reason_for(scene: str, label: str) -> str | None:
    return next((why for where, what, why in REASONS if where == scene and re.match(what, label)), None)

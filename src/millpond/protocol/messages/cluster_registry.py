"""The APIs brokers speak among themselves, with keys far from Kafka's. Never advertised.

Pure data. Read by the cluster's front door.
"""

from typing import Final

from millpond.protocol.messages.registry import Api

CLUSTER_APIS: Final[dict[int, Api]] = {
    key: Api(key, name, 0, 0, None, 0, module)
    for key, name, module in (
        (20000, "Hello", "hello"),
        (20001, "Prove", "prove"),
        (20002, "RaftMessages", "raft_messages"),
        (20003, "ProposeChange", "propose_change"),
        (20004, "BrokerHeartbeat", "broker_heartbeat"),
        (20005, "ChangeMembers", "change_members"),
        (20006, "Meet", "meet"),
        (20007, "KeepStates", "keep_states"),
        (20008, "TakeMessages", "take_messages"),
        (20009, "SettleMessages", "settle_messages"),
        (20010, "MeasureQueues", "measure_queues"),
    )
}
GREETINGS: Final = frozenset({20000, 20001})
"""What a connection may say before it has proved itself."""
MEET: Final = 20006

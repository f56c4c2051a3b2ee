"""The table of APIs agrees with the classes, and costs little to import."""

import subprocess
import sys

import pytest

from millpond.protocol.messages import (
    add_raft_voter,
    alter_configs,
    alter_delay,
    alter_partition_reassignments,
    alter_share_group_offsets,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_delays,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    unregister_broker,
)
from millpond.protocol.messages.registry import APIS, Api

MODULES = [
    *(alter_configs, api_versions, consumer_group_describe, consumer_group_heartbeat, create_partitions),
    *(create_topics, delete_groups, delete_records, delete_topics, describe_cluster, describe_configs),
    *(
        describe_groups,
        describe_log_dirs,
        describe_producers,
        describe_quorum,
        describe_topic_partitions,
        elect_leaders,
        fetch,
    ),
    *(find_coordinator, heartbeat, incremental_alter_configs, init_producer_id, join_group, leave_group),
    *(list_config_resources, list_groups, list_offsets, metadata, offset_commit, offset_delete, offset_fetch),
    *(offset_for_leader_epoch, produce, sasl_authenticate, sasl_handshake, sync_group),
    *(add_raft_voter, remove_raft_voter, alter_delay, list_delays),
    *(alter_partition_reassignments, list_partition_reassignments, unregister_broker),
    *(share_group_heartbeat, share_group_describe, share_fetch, share_acknowledge),
    *(describe_share_group_offsets, alter_share_group_offsets, delete_share_group_offsets),
]


def test_every_api_has_a_module_and_every_module_a_row() -> None:
    assert {api.request_class.__module__ for api in APIS.values()} == {module.__name__ for module in MODULES}
    assert list(APIS) == sorted(APIS)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_row_agrees_with_its_classes(api: Api) -> None:
    for declared in (api.request_class, api.response_class):
        assert declared.api_key == api.key
        assert declared.versions == range(api.version_min, api.version_max + 1)
        assert declared.flexible_since == api.flexible_since
        for version in (-1, *declared.versions, api.version_max + 1):
            assert api.serves(version) == (version in declared.versions)


def test_only_produce_is_advertised_from_before_it_is_served() -> None:
    early = [api.name for api in APIS.values() if api.version_advertised_min != api.version_min]
    assert early == ["Produce"]
    assert APIS[0].version_advertised_min == 0
    assert not APIS[0].serves(2)


def test_importing_the_table_imports_no_api() -> None:
    script = (
        "import sys, millpond.protocol.messages.registry as registry\n"
        "before = sorted(name for name in sys.modules if name.startswith('millpond.protocol.messages.'))\n"
        "registry.APIS[12].request_class\n"
        "print(before, 'millpond.protocol.messages.heartbeat' in sys.modules, 'dataclasses' in before)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "['millpond.protocol.messages.registry'] True False\n"

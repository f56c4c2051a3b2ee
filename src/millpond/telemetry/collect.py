"""The facts that rooms below the broker keep, as metrics. One function for each kind of fact.

Driven by broker/operations/measure.py, on the loop: nothing may change while it is copied.
"""

from millpond.net.facts import NetworkFacts
from millpond.storage.facts import StorageFacts
from millpond.telemetry import catalogue
from millpond.telemetry.exposition import Exposition
from millpond.telemetry.groups import GroupFacts, reason_of
from millpond.telemetry.http import HttpFacts
from millpond.telemetry.kafka_errors import error_name
from millpond.telemetry.requests import RequestFacts


def add_requests(to: Exposition, facts: RequestFacts) -> None:
    for _, api in sorted(facts.by_api.items()):
        to.add(catalogue.REQUESTS, (api.name,), api.request_count)
        to.add_latencies(catalogue.REQUEST_DURATION, (api.name,), api.latencies)
        for code, count in sorted(api.errors.items()):
            to.add(catalogue.REQUEST_ERRORS, (api.name, error_name(code)), count)
    to.add(catalogue.REQUESTS_REJECTED, ("malformed",), facts.malformed)
    to.add(catalogue.REQUESTS_REJECTED, ("unserved",), facts.unserved)


def add_http(to: Exposition, facts: HttpFacts) -> None:
    for status, count in sorted(facts.answered.items()):
        to.add(catalogue.HTTP_REQUESTS, (str(status),), count)
    to.add(catalogue.HTTP_CONNECTIONS_OPEN, (), facts.connections_open)


def add_network(to: Exposition, facts: NetworkFacts) -> None:
    to.add(catalogue.RECEIVED_BYTES, (), facts.bytes_in)
    to.add(catalogue.SENT_BYTES, (), facts.bytes_out)
    to.add(catalogue.CONNECTIONS_OPEN, (), facts.connections_open)
    to.add(catalogue.CONNECTIONS_ACCEPTED, (), facts.connections_total)
    to.add(catalogue.CONNECTIONS_REFUSED, (), facts.connections_refused)
    for reason, count in facts.closes.items():
        to.add(catalogue.CONNECTIONS_CLOSED, (reason.name.lower(),), count)


def add_storage(to: Exposition, facts: StorageFacts) -> None:
    to.add_latencies(catalogue.SYNC_DURATION, (), facts.syncs)
    to.add(catalogue.SYNCED_BYTES, (), facts.synced_bytes)


def add_group_facts(to: Exposition, facts: GroupFacts) -> None:
    to.add_each(catalogue.REBALANCES, facts.rebalances)
    to.add_latencies(catalogue.REBALANCE_DURATION, (), facts.rebalance_latencies)
    to.add(catalogue.MEMBERS_JOINED, (), facts.members_joined)
    for why, count in facts.members_gone.items():
        to.add(catalogue.MEMBERS_GONE, (reason_of(why),), count)

"""KeepStates: by the shard that this broker has, when it is kept."""

import asyncio
from itertools import takewhile

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.core.delivery.kept import Request
from millpond.core.delivery.kept_format import decode_request, encode_answer
from millpond.model.errors import InvalidRecord, MalformedMessage
from millpond.model.limits import MIB
from millpond.protocol.messages.keep_states import DONE, UNAVAILABLE, KeepStatesRequest, KeepStatesResponse

ANSWER_BYTES_MAX = 16 * MIB


async def answer(cluster: Cluster, request: KeepStatesRequest, session: Session) -> KeepStatesResponse:
    try:
        requests = [decode_request(each) for each in request.requests]
    except InvalidRecord as error:
        raise MalformedMessage(str(error)) from error
    return await _perform(cluster, requests, request.partition_index, request.wait_ms)


async def _perform(cluster: Cluster, requests: list[Request], number: int, wait_ms: int) -> KeepStatesResponse:
    until = asyncio.get_running_loop().time() + wait_ms / 1000
    states = cluster.states
    answers = None if states is None else await states.perform_here(number, requests, until=until)
    if answers is None:
        return KeepStatesResponse(outcome=UNAVAILABLE)
    return KeepStatesResponse(outcome=DONE, answers=_fitting([encode_answer(each) for each in answers]))


def _fitting(answers: list[bytes]) -> list[bytes]:
    """One at least; who asked asks for the others again, and they are answered as what they are: done already."""
    size = 0

    def fits(answer: bytes) -> bool:
        nonlocal size
        is_first, size = size == 0, size + len(answer)
        return is_first or size <= ANSWER_BYTES_MAX

    return list(takewhile(fits, answers))

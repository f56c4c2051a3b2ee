"""Who should lead: the controller lets preferred replicas lead again, now and then, and elects where a change of
settings allows it.

Who may lead is decided by core/metadata/elections.py. Only the controller changes anything here, and only as long as
it is. Driven by app, which starts and cancels it; listens to the metadata log.
"""

import asyncio
from collections.abc import Callable, Sequence

from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.commands import Command
from millpond.core.metadata.elections import balance, elect_leaderless
from millpond.core.metadata.image import Image
from millpond.model.errors import MillpondError


async def keep_preferred(
    metadata: MetadataLog,
    *,
    pause_seconds: float | None,
    imbalance_percent_max: int,
    on_error: Callable[[BaseException], None],
) -> None:
    """Without a pause it only looks for leaders where there are none."""
    loop = asyncio.get_running_loop()
    settings_changed = asyncio.Event()

    def follow(before: Image, after: Image) -> None:
        if _have_settings_changed(before, after):
            settings_changed.set()

    metadata.listen(follow)
    next_at = None if pause_seconds is None else loop.time() + pause_seconds
    while True:
        try:
            async with asyncio.timeout_at(next_at):
                await settings_changed.wait()
        except TimeoutError:
            assert pause_seconds is not None
            next_at = loop.time() + pause_seconds
            await _change(metadata, lambda image: balance(image, imbalance_percent_max=imbalance_percent_max), on_error)
        settings_changed.clear()
        await _change(metadata, elect_leaderless, on_error)


async def _change(
    metadata: MetadataLog, rule: Callable[[Image], Sequence[Command]], on_error: Callable[[BaseException], None]
) -> None:
    if not metadata.quorum.is_controller or not rule(metadata.image):
        return
    try:
        await metadata.submit_as_controller(rule)
    except MillpondError:
        return  # no majority, or no disk, or another controller by now: next time
    except Exception as error:
        on_error(error)


def _have_settings_changed(before: Image, after: Image) -> bool:
    if before.broker_configs is not after.broker_configs:
        return True
    if before.topics is after.topics:
        return False
    pairs = ((before.topics_by_id.get(topic_id), each) for topic_id, each in after.topics_by_id.items())
    return any(old is not None and old.configs != new.configs for old, new in pairs)

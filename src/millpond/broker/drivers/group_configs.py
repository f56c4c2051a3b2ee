"""What holds for each group, worked out once for each change of settings: it is asked with every heartbeat and fetch.

Reads the image; driven by groups.py, and by whoever delivers to groups.
"""

from collections.abc import Mapping

from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.group_configs import GroupConfig, group_config

GROUPS_REMEMBERED_MAX = 10_000


class GroupConfigs:
    def __init__(self, metadata: MetadataLog, *, static: Mapping[str, str]) -> None:
        self._metadata = metadata
        self._static = static
        self._seen: tuple[object, object] = (None, None)
        self._known: dict[str, GroupConfig] = {}

    def of(self, group: str) -> GroupConfig:
        image = self._metadata.image
        seen = (image.group_configs, image.broker_configs)
        if seen[0] is not self._seen[0] or seen[1] is not self._seen[1] or len(self._known) >= GROUPS_REMEMBERED_MAX:
            self._seen, self._known = seen, {}
        found = self._known.get(group)
        if found is None:
            found = self._known[group] = group_config(image, layers(image, self._static).merged(), group)
        return found

"""The API keys that have a handler; what is not here is not advertised, and not answered.

Pure data. Read by dispatch.py and by the ApiVersions handler.
"""

from typing import Final

from millpond.protocol.messages.registry import APIS, Api

_KEYS: Final = (
    *(0, 1, 2, 3, 18),  # produce, fetch, look up
    *(8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69),  # groups
    *(76, 77, 78, 79, 90, 91, 92),  # share groups
    *(19, 20, 21, 22, 23, 32, 33, 35, 37, 43, 44, 45, 46, 55, 60, 61, 64, 74, 75, 80, 81),  # producers, administration
    *(21000, 21001),  # delayed messages
)

SERVED: Final[dict[int, Api]] = {key: APIS[key] for key in sorted(_KEYS)}

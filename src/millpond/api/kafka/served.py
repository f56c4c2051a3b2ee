"""The API keys that have a handler; what is not here is not advertised, and not answered.

Pure data. Read by dispatch.py and by the ApiVersions handler.
"""

from typing import Final

from millpond.protocol.messages.registry import APIS, Api

SERVED: Final[dict[int, Api]] = {key: APIS[key] for key in (0, 1, 2, 3, 18, 19, 20, 22, 23, 60)}

"""What this broker has to do with the others of its cluster, as the cluster's front door finds it.

Made by app; nothing here decides anything.
"""

from millpond.broker.drivers.controller import Controller
from millpond.broker.drivers.discovery import Finder
from millpond.broker.drivers.doorkeeper import Doorkeeper
from millpond.broker.drivers.links import Identity, Links
from millpond.broker.drivers.quorum import Quorum
from millpond.broker.drivers.states import States
from millpond.broker.node import Node
from millpond.model.values import dataclass


@dataclass(slots=True, kw_only=True)
class Cluster:
    identity: Identity
    founders: tuple[int, ...]
    """As the settings name them, in order."""
    quorum: Quorum
    links: Links
    doorkeeper: Doorkeeper
    controller: Controller
    finder: Finder | None
    """Where addresses of others are discovered."""
    states: States | None = None
    """None until the broker knows what it leads."""
    node: Node | None = None
    """The same."""

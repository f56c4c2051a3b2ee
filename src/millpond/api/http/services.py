"""What the routes are given to work with.

Made by application.py; nothing here decides anything.
"""

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.reading import Reading
from millpond.broker.node import Node
from millpond.broker.operations.measure import Meter
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    node: Node
    meter: Meter
    neighbours: Neighbours
    producing: Producing
    reading: Reading

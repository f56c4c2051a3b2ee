"""Where a chaos takes place: a network namespace and a disk of its own for each broker, as far as the machine permits.

Each part stands on its own, and what the machine lacks is told in a sentence:
  network   namespaces on a switch, so that ways between brokers can be cut; loopback ports otherwise
  disks     an ext4 in a loop-mounted file each, so that power can be cut and disks can fill; directories otherwise

Invariant: nothing that was made here is left when it is closed, and nothing else was touched.
Driven by chaos.py, in a process of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cluster_processes import BROKERS, Place, on_loopback
from tests.machine.ext4_image import Ext4Image, why_no_image
from tests.machine.network import Network, private_network
from tests.machine.programs import missing

PORT = 9092

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ground:
    places: dict[int, Place]
    network: Network | None
    disks: dict[int, Ext4Image]
    """By broker; none where the machine permits none."""


@contextmanager
def prepared(directory: Path, *, disk_bytes: int, tell: Tell, only_loopback: bool = False) -> Iterator[Ground]:
    network = None if only_loopback else _network(tell)
    with ExitStack() as stack:
        disks = {} if only_loopback else _disks(directory, stack, disk_bytes, tell)
        directories = {each: disks[each].root / "data" if disks else directory / str(each) for each in BROKERS}
        ends_with_us = () if missing("setpriv") else ("setpriv", "--pdeathsig", "KILL")
        if network is None:
            places = on_loopback(directories, on=ends_with_us)
        else:
            places = {
                each: Place(network.address(each), PORT, directories[each], on=(*ends_with_us, *network.on(each)))
                for each in BROKERS
            }
        yield Ground(places, network, disks)


def _network(tell: Tell) -> Network | None:
    """There is no going back from it, and no need to clean up: it ends with this process."""
    network = private_network(BROKERS)
    if isinstance(network, str):
        tell(f"LEFT OUT: all faults of the network, brokers are on loopback ports; {network}")
        return None
    if not network.has_nft:
        tell("no nft here: ways are cut by blackhole routes. LEFT OUT: packets lost by chance")
    if network.slows_by is None:
        tell("LEFT OUT: slow links; they need tc, and netem or tbf in the kernel")
    elif network.slows_by != "netem":
        tell(f"no netem here: links are slowed down by {network.slows_by}")
    return network


def _disks(directory: Path, stack: ExitStack, disk_bytes: int, tell: Tell) -> dict[int, Ext4Image]:
    why_not = why_no_image(directory)
    if why_not is not None:
        tell(f"LEFT OUT: power cuts and full disks; {why_not}")
        return {}
    disks = {}
    for each in BROKERS:
        (directory / f"disk-{each}").mkdir()
        disks[each] = stack.enter_context(Ext4Image(directory / f"disk-{each}", size_bytes=disk_bytes))
    return disks

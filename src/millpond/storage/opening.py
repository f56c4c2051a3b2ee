"""A partition's log, whatever its directory holds: opened where it is the same topic's, else begun anew.

What belongs to an earlier topic of the same name, or was never founded, is put aside under a name that ends in
`.removed`, and never read; whoever owns the data directory removes it. A directory whose owner cannot be told, because
the document is damaged, is taken for the topic's own: its records may be all that is left of them.
Blocks on the disk. Driven by the broker's table of partitions, at start in a thread.
"""

from itertools import count

from millpond.model.errors import DiskFailed
from millpond.model.ports import Filesystem
from millpond.storage.checkpoints import write_document
from millpond.storage.facts import StorageFacts
from millpond.storage.founding import Founding, is_unfounded, owner_of
from millpond.storage.log import Log
from millpond.storage.names import TOPIC_ID
from millpond.storage.recovery import nothing_yet
from millpond.storage.settings import LogSettings

REMOVED = ".removed"


def open_or_begin(
    filesystem: Filesystem, directory: str, settings: LogSettings, *, owner: str, facts: StorageFacts
) -> Log:
    """The log of a topic, by its id in hexadecimal."""
    try:
        is_there = claim(filesystem, directory, owner)
    except OSError as error:
        raise DiskFailed(f"{directory} cannot be made ready for topic {owner}: {error}") from error
    if is_there:
        return Log.open(filesystem, directory, settings, facts=facts)
    return begin(filesystem, directory, settings, owner=owner, facts=facts)


def begin(filesystem: Filesystem, directory: str, settings: LogSettings, *, owner: str, facts: StorageFacts) -> Log:
    """A new log where there is no directory. It gets its files with its first batch; see founding.py."""
    founding = Founding(filesystem, directory, owner)
    return Log(nothing_yet(filesystem, directory, settings), settings, facts, founding)


def claim(filesystem: Filesystem, directory: str, owner: str) -> bool:
    """Whether there is a directory, which is the owner's then."""
    if not filesystem.exists(directory):
        return False
    known = owner_of(filesystem, directory)
    if known == owner:
        return True
    if known is not None or is_unfounded(filesystem, directory):
        put_aside(filesystem, directory, known or owner)
        return False
    write_document(filesystem, directory, TOPIC_ID, owner)
    return True


def put_aside(filesystem: Filesystem, directory: str, owner: str) -> str:
    """Under which name; what a partition left when it went from here before may still be there. For good after a
    `sync_directory` of the directory above."""
    names = (f"{directory}.{owner}{f'-{number}' if number else ''}{REMOVED}" for number in count())
    aside = next(name for name in names if not filesystem.exists(name))
    filesystem.rename(directory, aside)
    return aside

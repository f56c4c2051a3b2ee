"""A world of its own for this process and those it starts: networks and mounts that nobody else sees.

`enter` leaves the machine's network and mount namespaces for new ones, as root or, where the kernel lets everybody, as
a user who is root in there. Whatever is built inside is gone with the last process in it, however that ends.

Invariant: nothing outside is touched, nor kept: a disk that another test has mounted is let go of at once. There is no
way back, so a process enters for good, before it starts a thread.
"""

import ctypes
import os
import threading
from pathlib import Path

from tests.machine.programs import missing, run

_NEW_MOUNTS, _NEW_USERS, _NEW_NETWORK = 0x0002_0000, 0x1000_0000, 0x4000_0000
_PRIVATE_AND_BELOW = 0x0004_0000 | 0x4000
_DETACH = 2


def enter() -> str | None:
    """Why this machine does not permit it, where it does not."""
    assert threading.active_count() == 1, "a namespace is a thread's, and those it starts later"
    if absent := missing("ip", "mount", "nsenter", "setpriv"):
        return f"network namespaces need {absent}"
    user, group = os.geteuid(), os.getegid()
    flags = _NEW_MOUNTS | _NEW_NETWORK | (0 if user == 0 else _NEW_USERS)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        return f"this machine permits no network namespaces: {os.strerror(ctypes.get_errno())}"
    if libc.mount(None, b"/", None, _PRIVATE_AND_BELOW, None) != 0:
        return f"this machine permits no mounts of one's own: {os.strerror(ctypes.get_errno())}"
    _let_go_of_loop_disks(libc)
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    try:
        run("mount", "-t", "tmpfs", "tmpfs", "/run")  # where `ip` keeps the names of namespaces
        run("ip", "link", "set", "lo", "up")
    except RuntimeError as error:
        return f"network namespaces are permitted, but not what goes with them: {error}"
    return None


def _let_go_of_loop_disks(libc: ctypes.CDLL) -> None:
    """They came with the copy of all mounts. Here they are nobody's; while they are here, they cannot end outside."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[1].startswith("/dev/loop"):
            where = before.split()[4].encode().decode("unicode_escape")
            libc.umount2(os.fsencode(where), _DETACH)

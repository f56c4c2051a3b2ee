"""Raft: one log that a majority keeps, and one leader at a time that writes it.

    messages, time, proposals ──> raft.py ──> Output: persist, send, restore, apply, facts

    raft.py        the machine: the door, elections, following
    leading.py     what only a leader has: peers, rounds, the lease, reads, handing over
    peer.py        what a leader knows of one other node
    log.py         the entries since the last snapshot, and which membership they say
    durability.py  what is on its way to the disk, and what must wait for it

Invariant: whatever `Output.messages` holds may be sent at once. Words that promise something (a vote, "I have these
entries") are kept back inside until the driver says that what they promise is durable.
Pure. Driven by a driver in `broker`, which owns the disk, the connections and the clock.
"""

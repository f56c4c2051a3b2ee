"""Keeping copies of one partition on several brokers: what a leader knows of them, what a follower does, and leases.

    leading.py     the leader: high watermark, who is in sync, whether that is enough
    following.py   the follower: append, cut off, begin anew, wait; and where two logs part
    lease.py       how long a broker may act, and when the controller may take it for dead
    members.py     the part of the image that a leader needs

Followers fetch, sync, and only then fetch on, so a fetch says what is safe there. Who leads is decided elsewhere
(core/metadata/elections.py). Pure; driven by broker/drivers.
"""

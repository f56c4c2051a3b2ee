"""One broker's group coordinator: who is in which group, who reads which partition, and how far they have come.

`registry.py` is the door. Behind it a group is either classic (its leader assigns, `classic.py`) or consumer (the
coordinator assigns, `consumer.py`); both keep their committed offsets in `offsets.py`.
Pure; driven by broker/drivers/groups.py.
"""

"""What the cluster knows of itself: brokers, topics, partitions, configs, as commands applied to an image.

    request ──> a rule: controller.py, elections.py, ... ──> commands ──> a log ──> image.py ──> the next image

Whoever holds the log decides when a command counts: today a local one, later a Raft quorum. Deciding and applying do
not know which. Pure; driven by broker/drivers/metadata.py.
"""

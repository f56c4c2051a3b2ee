"""What the storage engine costs, always beside the plain system calls that do the same on the same disk.

`python -m bench` measures, prints tables and writes bench/results/storage.json. One file per subject: appends.py,
reads.py, lookups.py, recoveries.py, records.py; what they share is in measuring.py, workspace.py and batches.py.
"""

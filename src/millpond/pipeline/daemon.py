"""The process that Spark forks its Python workers from, with everything a task needs loaded before the first fork.

A worker that has to load Arrow and pandas itself spends most of a second on it, and each task's garbage collection
walks all of that again unless it is frozen.

Driven by Spark, through `spark.python.daemon.module` (session.py).
"""

import gc

import pandas as pd  # noqa: F401 - loaded here, so that no worker has to
import pyspark.sql.worker.plan_data_source_read
import pyspark.sql.worker.write_into_data_source
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import millpond.pipeline.source  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()

"""`python -m tests.pipeline.copying`: a query that copies one topic to another, exactly once, as any program would.

For failover.py, which kills it. Rows are cut into many small record batches, so that a kill meets half of a task's.
"""

import argparse
import os
import sys

from millpond.pipeline.session import session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "source", "target", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--offsets-max", default="2000")
    parser.add_argument("--to-the-end", action="store_true")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session("local[2]", name="copying", configs={"spark.ui.enabled": "false"})
    where = {"kafka.bootstrap.servers": given.bootstrap}
    rows = (
        spark.readStream.format("millpond")
        .options(**where, subscribe=given.source, startingOffsets="earliest", columns="key,value")
        .option("maxOffsetsPerTrigger", given.offsets_max)
        .load()
    )
    writer = rows.writeStream.format("millpond").options(**where, topic=given.target)
    writer = writer.option("kafka.batch.size", "2048").option("checkpointLocation", given.checkpoint)
    how = {"availableNow": True} if given.to_the_end else {"processingTime": "0 seconds"}
    writer.trigger(**how).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

"""What a query of the metrics pipeline does in its first micro-batch, without the query, which is slow to start."""

from pyspark.sql import SparkSession

from millpond.pipeline import metrics
from millpond.pipeline.metrics_job import MetricsJob


def take_in(spark: SparkSession, job: MetricsJob) -> None:
    """Everything that is there."""
    folder = job.settings.checkpoint_folder
    folder.mkdir()
    (folder / "metadata").write_text('{"id": "a query"}')
    options = {"kafka.bootstrap.servers": job.settings.bootstrap, "subscribe": job.settings.topic}
    typed = {"columns": metrics.COLUMNS, "value.format": "json", "value.schema": metrics.value_schema(job.fields)}
    job.do_batch(spark.read.format("millpond").options(**options, **typed).load(), 0)

"""The data pipeline on Spark, through PySpark: `millpond[spark]`.

source.py is what `spark.read.format("millpond")` finds, and what it is made of is found from there.
"""

"""The jobs of the data pipeline, each on Spark."""

"""Raftline in Spark: a data source for ``format("raftline")``.

::

    raftline.spark.register(spark)
    read = spark.read.format("raftline").option("servers", "http://127.0.0.1:8080")
    read.option("topic", "orders").load()
"""

from typing import TYPE_CHECKING

try:
    import pyarrow as _pyarrow  # noqa: F401 # pyright: ignore[reportMissingTypeStubs, reportUnusedImport]
    import pyspark as _pyspark  # noqa: F401 # pyright: ignore[reportUnusedImport]
except ModuleNotFoundError as error:
    raise ImportError(
        f"raftline.spark needs {error.name}, which is not installed: pip install 'raftline[spark]'"
    ) from error

from raftline.spark.rejects import reject
from raftline.spark.source import RaftlineDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RaftlineDataSource", "register", "reject"]


def register(spark: "SparkSession") -> None:
    """Make ``format("raftline")`` known to a session."""
    spark.dataSource.register(RaftlineDataSource)

"""The data source ``raftline``: what Spark makes of ``format("raftline")``."""

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from raftline.spark import options as option_table

COLUMNS = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, priority int"
)


class RaftlineDataSource(DataSource):
    """Topics of a Raftline cluster as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "raftline"

    def schema(self) -> str:
        """Return the columns; without ``value`` where it is not included."""
        options = option_table.check_any_read(self.options)
        return COLUMNS if options.include_value else COLUMNS.replace(" value binary,", "", 1)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read."""
        from raftline.spark.batch_reader import RaftlineReader

        return RaftlineReader(option_table.parse(self.options, option_table.BATCH_READ))

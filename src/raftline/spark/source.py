"""The data source ``raftline``: what Spark makes of ``format("raftline")``."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from raftline.spark import options as option_table
from raftline.spark.options import Options, bad
from raftline.spark.rejects import METADATA

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("priority", IntegerType()),
    ]
)


class RaftlineDataSource(DataSource):
    """Topics of a Raftline cluster as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "raftline"

    def schema(self) -> StructType:
        """Return the columns; without ``value`` where it is not included."""
        return columns_of(option_table.check_any_read(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read."""
        from raftline.spark.batch_reader import FilteringReader, RaftlineReader

        options = option_table.parse(self.options, option_table.BATCH_READ)
        _check_schema(schema, options)
        return FilteringReader(options) if options.push_filters else RaftlineReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a stream read, or a queue read where a group is named."""
        from raftline.spark.queue_reader import RaftlineQueueReader
        from raftline.spark.stream_reader import RaftlineStreamReader

        options = option_table.parse(self.options, option_table.STREAM_READ)
        _check_schema(schema, options)
        return RaftlineQueueReader(options) if options.group else RaftlineStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return a batch write."""
        from raftline.spark.rows import check_columns
        from raftline.spark.writers import RaftlineWriter

        options = option_table.parse(self.options, option_table.BATCH_WRITE)
        _refuse_overwrite(overwrite=overwrite)
        check_columns(schema, options.topic)
        return RaftlineWriter(options)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Return a stream write."""
        from raftline.spark.rows import check_columns
        from raftline.spark.writers import RaftlineStreamWriter

        options = option_table.parse(self.options, option_table.STREAM_WRITE)
        _refuse_overwrite(overwrite=overwrite)
        check_columns(schema, options.topic)
        return RaftlineStreamWriter(options)


def columns_of(options: Options) -> StructType:
    """Return the columns of a read. Those of a queue read remember where they are from."""
    origin = {"servers": options.servers, "group": options.group, "query": options.query}
    metadata = {METADATA: origin} if options.group else None
    return StructType(
        [
            StructField(field.name, field.dataType, True, metadata)
            if field.name == "offset"
            else field
            for field in COLUMNS.fields
            if options.include_value or field.name != "value"
        ]
    )


def _check_schema(schema: StructType, options: Options) -> None:
    """Refuse columns of the user's own: only ours are there."""
    wanted = columns_of(options)
    if schema.simpleString() != wanted.simpleString():
        raise bad(
            f"these columns are not there: {schema.simpleString()[:200]}",
            f"leave .schema() out; they are {', '.join(wanted.fieldNames())}, and select() chooses",
        )


def _refuse_overwrite(*, overwrite: bool) -> None:
    if overwrite:
        raise bad("a log cannot be overwritten", 'write .mode("append")')

"""The columns of messages in Arrow: what Spark reads and what the archive keeps."""

# pyright: basic
# Arrow says too little of its types for more.

import pyarrow as pa

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", HEADER_TYPE))),
        ("priority", pa.int32()),
    ]
)
NAMES: list[str] = SCHEMA.names
SCHEMA_WITHOUT_VALUE = SCHEMA.remove(SCHEMA.get_field_index("value"))

"""What dead letters are now (dead, redriven, purged), for a column of their offsets.

The state of a letter is at its source, not in the dead-letter log; whoever asks for the column
asks a node for a page of letters at a time. Spark leaves it out where a query does not use it.
"""

# pyright: basic
# Spark and pandas say too little of their types for more.

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from raftline.client.caller import Caller

PAGE = 1_000


def state_column(servers: str, source: str) -> Any:
    """Return a function of Spark: offset of a dead letter of ``source`` -> state."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    def look(offsets: Iterator[pd.Series]) -> Iterator[pd.Series]:
        with Caller(servers) as caller:
            for piece in offsets:
                known = states_of(caller, source, [int(offset) for offset in piece])
                yield pd.Series([known.get(int(offset)) for offset in piece], dtype=object)

    look.__annotations__ = {"offsets": Iterator[pd.Series], "return": Iterator[pd.Series]}
    make: Any = pandas_udf
    return make(look, "string")


def states_of(caller: Caller, source: str, offsets: list[int]) -> dict[int, str]:
    """Return the state of each letter; those off the list are purged."""
    found = dict.fromkeys(offsets, "purged")
    if not offsets:
        return found
    after, last = min(offsets) - 1, max(offsets)
    path = f"/v1/topics/{quote(source, safe='')}/dlq"
    while after < last:
        query: dict[str, Any] = {"limit": PAGE}
        if after >= 0:
            query["after"] = after
        page = caller.call("GET", path, query=query)
        for row in page["letters"]:
            if row["offset"] in found:
                found[row["offset"]] = row["state"]
        if page["next"] is None:
            break
        after = int(page["next"].rpartition(".")[2])
    return found

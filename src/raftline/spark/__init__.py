"""Raftline in Spark: a data source for `format("raftline")`."""

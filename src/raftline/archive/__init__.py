"""Messages kept as Parquet files: layout, manifest, writing and reading. Needs no JVM."""

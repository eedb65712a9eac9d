"""Why Raftline is behind where it is, as profiles say; shown under the tables of the report."""

REASONS: dict[str, str] = {}  # by the name of the table

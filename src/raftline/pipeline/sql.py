"""``raftline pipeline sql``: a query over topics, dead letters, traces and groups.

Spark is given the query as it is. Where it finds no table of a name it says which, and where in the
text; then that table is made and it is asked again. So names are found by Spark's own parser, also
in subqueries and behind ``with``, and only what a query mentions is ever looked at.

A name of two parts (``orders.dlq``) would be a table of a database to Spark: its place in the text
is given the quoted name of a view.
"""

# pyright: basic
# Spark says too little of its types for more.

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.model.errors import Conflict, InvalidArgument
from raftline.pipeline.job import Job
from raftline.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES_MAX = 50  # in one query
PUSH_FILTERS = "pushFilters"
FORMS = ("parquet", "csv", "json")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_PART = re.compile(r"`((?:[^`]|``)*)`")
_FUNCTIONS = {
    "text": "(b binary) returns string return cast(b as string)",
    "json": """(t string, path string) returns string
        return get_json_object(t, case when path like '$%' then path else '$.' || path end)""",
}
_SETTINGS = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.runSQLOnFiles": "false",  # raftline.groups is a table, not a file of our source
}
_EXPLAIN = re.compile(r"\s*explain\s+(?:(?:extended|codegen|cost|formatted)\s+)?", re.IGNORECASE)
_MAY_RUN = re.compile(r"(Describe|Explain|Show)\w*")
_PLANS = "org.apache.spark.sql.catalyst"
_NO_QUERIES = (
    f"{_PLANS}.plans.logical.Command",
    f"{_PLANS}.plans.logical.ParsedStatement",
    f"{_PLANS}.plans.logical.InsertIntoDir",  # neither of both, and overwrites a directory
    f"{_PLANS}.analysis.UnresolvedExecuteImmediate",
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a query answered."""

    columns: list[str]
    rows: list[list[Any]]
    is_cut: bool  # there are more rows than were asked for
    written: str = ""  # where they went instead


def run(
    job: Job,
    *,
    query: str,
    limit: int = 100,
    output: str = "",
    archive: str = "",
    decode: str = "text",
    source_options: dict[str, str] | None = None,
) -> Result:
    """Run a query.

    Args:
        job: whose session and servers are used.
        query: a SELECT (or DESCRIBE, EXPLAIN).
        limit: rows returned at most.
        output: ``NAME.parquet``, ``.csv`` or ``.json``: all rows go there instead.
        archive: directory of the archive, or ``true``: where each topic says.
        decode: ``text`` or ``binary``: what keys and values are.
        source_options: further options of the data source, as ``startingTimestamp``.
    """
    form = _form_of(output)
    options = {PUSH_FILTERS: "true", **(source_options or {})}
    with Desk(job, archive=archive, decode=decode, options=options) as desk:
        check_query(job.spark, query)
        found = desk.resolve(query)
        if not _is_one_scan(found):  # B1 of batch_reader.py
            desk.drop_tables()
            del desk.tables.options[PUSH_FILTERS]
            found = desk.resolve(query)
        if form:
            table = _flat(found) if form == "csv" else found
            style = {"header": "true", "escape": '"'} if form == "csv" else {}
            writer = table.write.mode("errorifexists").format(form).options(**style)
            writer.save(job.place(output))
            return Result(columns=found.columns, rows=[], is_cut=False, written=output)
        rows = found.limit(limit + 1).collect()
    return Result(
        columns=found.columns,
        rows=[list(row) for row in rows[:limit]],
        is_cut=len(rows) > limit,
    )


class Desk:
    """A session made ready for queries of people, and left as it was."""

    __slots__ = ("_before", "_spark", "_views", "tables")

    def __init__(
        self, job: Job, *, archive: str = "", decode: str = "text", options: dict[str, str]
    ) -> None:
        self._spark = job.spark
        self._before: dict[str, str | None] = {}
        self._views: list[str] = []
        self.tables = Tables(
            job.spark, job.servers, archive=archive, decode=decode, options=options
        )

    def __enter__(self) -> "Desk":
        conf = self._spark.conf
        for name, value in _SETTINGS.items():
            self._before[name] = conf.get(name, None)
            conf.set(name, value)
        for name, function in _FUNCTIONS.items():
            self._spark.sql(f"create or replace temporary function {name}{function}")
        return self

    def __exit__(self, *_: object) -> None:
        self.tables.close()
        self.drop_tables()
        for name in _FUNCTIONS:
            self._spark.sql(f"drop temporary function if exists {name}")
        for name, value in self._before.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)

    def resolve(self, query: str) -> "DataFrame":
        """Return a query as Spark understands it, with every table it mentions made."""
        explain = _EXPLAIN.match(query)
        if explain is None:
            return self._resolve(query)[0]
        # Spark explains that a table is not there, and raises nothing.
        explained = query[explain.end() :]
        check_query(self._spark, explained)
        return self._spark.sql(explain[0] + self._resolve(explained)[1])

    def _resolve(self, query: str) -> "tuple[DataFrame, str]":
        """Return a query as Spark understands it, and its text with the names that tables have."""
        from pyspark.errors import AnalysisException

        text = query
        for _ in range(TABLES_MAX):
            try:
                return self._spark.sql(text), text
            except AnalysisException as error:
                if not (error.getCondition() or "").startswith(_NOT_FOUND):
                    raise
                text = self._make(text, error)
        raise InvalidArgument(f"a query of more than {TABLES_MAX} tables", "split it")

    def drop_tables(self) -> None:
        """Forget the tables that were made; they are made again where a query mentions them."""
        while self._views:
            self._spark.sql(f"drop view if exists {self._views.pop()}")

    def view(self, name: str, table: "DataFrame") -> str:
        """Make a table known under a name; return the name as SQL quotes it."""
        view = f"`{name.replace('`', '``')}`"
        table.createOrReplaceTempView(view)
        self._views.append(view)
        return view

    def _make(self, text: str, error: Any) -> str:
        """Make the table that was not found; return the query with the name that it has now."""
        relation = (error.getMessageParameters() or {}).get("relationName", "")
        parts = [part.replace("``", "`") for part in _PART.findall(relation)]
        name = ".".join(parts)
        view = self.view(name, self.tables.find(name))
        if len(parts) == 1:
            return text
        contexts = error.getQueryContext()
        if not contexts:
            raise InvalidArgument(f"where {name} stands in the query is not known", f"write {view}")
        start, end = contexts[0].startIndex(), contexts[0].stopIndex() + 1
        wide = text.encode("utf-16-le")  # Java counts in these
        changed = wide[: 2 * start] + view.encode("utf-16-le") + wide[2 * end :]
        return changed.decode("utf-16-le")


def check_query(spark: "SparkSession", query: str) -> None:
    """Refuse what is not a query: nothing here changes anything."""
    jvm: Any = spark._jvm
    ours: Any = spark._jsparkSession
    plan = ours.sessionState().sqlParser().parsePlan(query)
    if _MAY_RUN.fullmatch(plan.getClass().getSimpleName()):
        return
    loader = plan.getClass().getClassLoader()
    refused = [jvm.java.lang.Class.forName(name, False, loader) for name in _NO_QUERIES]
    parts = [plan]
    while parts:  # behind a ``with`` or in a union may be an insert
        part = parts.pop()
        if any(cls.isInstance(part) for cls in refused):
            kind = part.getClass().getSimpleName()
            raise InvalidArgument(
                f"this is no query ({kind})", "write a SELECT; topics are only read here"
            )
        below = part.children()
        parts += [below.apply(at) for at in range(below.size())]


def _is_one_scan(table: "DataFrame") -> bool:
    """Say whether a query reads one table, once."""
    ours: Any = table._jdf
    plan = ours.queryExecution().analyzed()
    return plan.collectLeaves().size() == 1 and plan.subqueriesAll().isEmpty()


def _flat(table: "DataFrame") -> "DataFrame":
    """Return a table as CSV can hold it: maps and lists as JSON, bytes as base64."""
    from pyspark.sql import functions as f

    for field in table.schema.fields:
        column = f.col(f"`{field.name}`")
        if field.dataType.typeName() in ("map", "array", "struct"):
            table = table.withColumn(field.name, f.to_json(column))
        elif field.dataType.typeName() == "binary":
            table = table.withColumn(field.name, f.base64(column))
    return table


def _form_of(output: str) -> str:
    if not output:
        return ""
    form = Path(output).suffix.removeprefix(".")
    if form not in FORMS:
        raise InvalidArgument(
            f"{output}: the name does not say what to write",
            "end it with " + " or ".join(f".{known}" for known in FORMS),
        )
    if "://" not in output and Path(output).exists():
        raise Conflict(f"{output} is there already", "remove it, or take another name")
    return form

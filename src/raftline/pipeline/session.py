"""A Spark session for a job: ``local[*]`` embedded, or any cluster by its master.

What is settled here, so that no job has to: which Java and which Python, loopback for local runs,
quiet logs, our code on every machine of the cluster, and the data source registered. Options that
the caller gives come last and win.

Java's own output goes to a file, not to the terminal; if Spark does not start, its end is told.
"""

import atexit
import importlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from raftline.pipeline.errors import SPARK_EXTRA, NoSpark, SparkFailed
from raftline.pipeline.java import find_java
from raftline.pipeline.shipping import package_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
SHUFFLE_PARTITIONS_LOCAL = "4"
LOG_LINES = 15
_TALKATIVE = "SQLQueryContextLogger"
_QUIET_LOGS = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


def require_spark() -> None:
    """Refuse to go on without PySpark.

    Raises:
        NoSpark: how to install it.
    """
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise NoSpark(
            f"the data pipeline runs on Spark, and {', '.join(missing)} cannot be found here",
            f"{SPARK_EXTRA}; where there is no Java either: pip install 'raftline[spark-jdk]'",
        )


def open_session(
    job: str, master: str = LOCAL, conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return a session with the data source ``raftline``; the one of this process if it has one.

    Args:
        job: its name in Spark's pages and logs.
        master: ``local[*]``, ``spark://host:port``, ``yarn``, ``k8s://…``.
        conf: further options of Spark; they win over ours.

    Raises:
        NoSpark, NoJava: what to install.
        SparkFailed: Spark does not start, and what it said.
    """
    require_spark()
    from pyspark.sql import SparkSession

    logging.getLogger(_TALKATIVE).setLevel(logging.CRITICAL)  # errors are raised as well
    session = SparkSession.getActiveSession()
    if session is None:
        session = _start(job, master, dict(conf or {}))
    else:
        for name, value in (conf or {}).items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
    _register(session)
    return session


def is_local(master: str) -> bool:
    """Say whether everything runs in this machine's one JVM."""
    return master.startswith("local")


def options(job: str, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark for a job."""
    found = {
        "spark.app.name": f"raftline {job}",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.streaming.stopTimeout": "30000",
    }
    if is_local(master):
        found["spark.sql.shuffle.partitions"] = SHUFFLE_PARTITIONS_LOCAL
    if is_local(master) or f"//{LOOPBACK}:" in master:
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = LOOPBACK
    return {**found, **conf}


def cache_home() -> Path:
    """Return where we may keep small files that can be made anew."""
    named = os.environ.get("XDG_CACHE_HOME")
    home = Path(named) if named else Path.home() / ".cache"
    try:
        (home / "raftline").mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"raftline-{os.getuid()}"
    return home / "raftline"


def _start(job: str, master: str, conf: dict[str, str]) -> "SparkSession":
    java = find_java(os.environ, cache_home())
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = options(job, master, conf)
    if settings.get("spark.driver.bindAddress") == LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    shipped = None
    if not is_local(master):
        shipped = package_zip(cache_home())
        # Spark's own processes beside the driver import us as well, from the zip.
        path = [str(shipped), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
    session = _launch(settings)
    if shipped is not None:
        session.sparkContext.addPyFile(str(shipped))  # before the source is registered
    return session


def _launch(settings: dict[str, str]) -> "SparkSession":
    """Start the JVM with its output in a file, then the session in it."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    java: Any = importlib.import_module("pyspark.java_gateway")
    directory = Path(tempfile.mkdtemp(prefix="raftline-spark-"))
    log = directory / "spark.log"
    quiet = directory / "log4j2.properties"
    quiet.write_text(_QUIET_LOGS.format(level=settings["spark.log.level"].lower()))
    extra = f"-Dlog4j2.configurationFile=file:{quiet}"
    java_options = settings.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = f"{java_options} {extra}".strip()
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    try:
        internals = cast("Any", SparkContext)
        if internals._gateway is None:
            with log.open("wb") as output:
                gateway = java.launch_gateway(conf, {"stdout": output, "stderr": output})
            internals._ensure_initialized(gateway=gateway)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
        gist = _gist(said[-LOG_LINES:], error)
        raise SparkFailed(
            f"Spark does not start at {settings['spark.master']}: {gist}",
            f"all that Java said is in {log}",
        ) from error
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return session


def _gist(said: list[str], error: BaseException) -> str:
    lines = [line.strip() for line in said if "rror" in line or "xception" in line]
    return lines[-1] if lines else str(error).splitlines()[0]


def _register(session: "SparkSession") -> None:
    from pyspark.errors import AnalysisException

    from raftline.spark import register

    try:
        register(session)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise

"""What can be wrong with a machine that is to run Spark. These never pass between nodes."""

from raftline.model.errors import Invalid

SPARK_EXTRA = "pip install 'raftline[spark]'"
JDK_EXTRA = "pip install 'raftline[spark-jdk]'"


class NoSpark(Invalid):
    """PySpark is not installed, or another version than ours."""

    code = "no_spark"


class NoJava(Invalid):
    """There is no Java that Spark can use."""

    code = "no_java"


class SparkFailed(Invalid):
    """Spark refused a query or gave up on a job; the message is the gist of what it said."""

    code = "spark_failed"

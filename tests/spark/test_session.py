"""Spark starts here at all: the ground every other test in this folder stands on."""

import pytest

pytestmark = pytest.mark.spark


def test_pyspark_is_the_version_that_the_data_source_was_written_for():
    import pyspark

    assert pyspark.__version__.startswith("4.2.")

"""The compiled record codec inside the aiokafka wheel, loaded without the rest of aiokafka.

A module of its own, imported at the first use: whoever comes second, in whichever thread, waits
for the import that goes on, as for any import, and never meets half of it.
"""

import importlib
import importlib.util
import sys
import types
from typing import Any


def _import_alone(package: str, inner: str, name: str) -> Any:
    """Import ``inner.name`` without running the packages' own ``__init__``.

    Bare packages stand in for them meanwhile and are taken away again, so that a later import of
    the real ones by somebody else works.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(package)
    folders = list(spec.submodule_search_locations)
    bare: list[str] = []
    for parent, below in ((package, ""), (inner, inner.removeprefix(package).replace(".", "/"))):
        if parent not in sys.modules:
            module = types.ModuleType(parent)
            module.__path__ = [folder + below for folder in folders]
            sys.modules[parent] = module
            bare.append(parent)
    try:
        return importlib.import_module(f"{inner}.{name}")
    finally:
        for parent in bare:
            del sys.modules[parent]


_module = _import_alone("aiokafka", "aiokafka.record", "_crecords.default_records")
Builder: Any = _module.DefaultRecordBatchBuilder
Reader: Any = _module.DefaultRecordBatch
CorruptRecord: Any = importlib.import_module("aiokafka.errors").CorruptRecordException

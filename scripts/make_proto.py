"""Make the Python code of proto/: ``make proto``. The code is not edited by hand.

protoc writes imports as if its output stood at the root; here they are made to stand where they do.
Services need no code of their own: the gateway reads them from the descriptors.
"""

import argparse
import re
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
PROTO = ROOT / "proto"
GENERATED = ROOT / "src" / "raftline" / "wire" / "proto"
PACKAGE = "raftline.wire.proto"
IMPORT = re.compile(r"^from (\w+)\.v1 import (\w+_pb2)", re.MULTILINE)


def make(target: Path) -> list[Path]:
    """Write the code of every proto below ``target``; return the files."""
    protos = sorted(PROTO.rglob("*.proto"))
    target.mkdir(parents=True, exist_ok=True)
    words = [
        "protoc",
        f"-I{PROTO}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        *map(str, protos),
    ]
    if protoc.main(words):
        raise SystemExit("protoc refused the protos")
    made = sorted([*target.rglob("*_pb2.py"), *target.rglob("*_pb2.pyi")])
    for file in made:
        file.write_text(IMPORT.sub(rf"from {PACKAGE}.\1.v1 import \2", file.read_text()))
    for folder in sorted({folder for file in made for folder in _folders(file, target)}):
        source = "/".join(("proto", *folder.relative_to(target).parts))
        (folder / "__init__.py").write_text(f'"""Generated from {source}: make proto."""\n')
    return sorted(file for file in target.rglob("*.py*") if file.suffix != ".pyc")


def _folders(file: Path, target: Path) -> list[Path]:
    return [folder for folder in file.parents if folder == target or target in folder.parents]


def main() -> int:
    """Make the code where it belongs, without what is not made any more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=GENERATED)
    target: Path = parser.parse_args().target
    for old in target.rglob("*.py*") if target.exists() else ():
        old.unlink()
    for file in make(target):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compiles the public .proto files of this repository to Python."""

import atexit
import pathlib
import shutil
import sys
import tempfile

import grpc_tools
from grpc_tools import protoc

FOLDERS = ["pelton", "compat"]


def generate(proto, folders=FOLDERS):
    """Makes `pelton.v1` and `compat` importable, or what is in other folders. The files of other
    packages (grpc.health and so on) have their own stubs in libraries, whose package `grpc` ours
    must not hide."""
    folder = tempfile.mkdtemp(prefix="pelton-stubs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sources = sorted(str(path) for name in folders for path in (proto / name).rglob("*.proto"))
    assert sources, f"no .proto files below {proto}"
    included = str(pathlib.Path(grpc_tools.__file__).parent / "_proto")
    command = [
        "protoc",
        f"-I{proto}",
        f"-I{included}",
        f"--python_out={folder}",
        f"--grpc_python_out={folder}",
    ]
    assert protoc.main(command + sources) == 0, "the .proto files do not compile"
    sys.path.insert(0, folder)

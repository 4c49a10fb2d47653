"""The toolchains that examples need: each function skips the test if its own is not there.

Each takes a folder that is on the PATH of the examples, and returns variables for their
environment. What is fetched from registries is kept in PELTON_CACHE. A toolchain that is there, but
cannot fetch what it needs, is a failure in CI.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

CACHE = pathlib.Path(os.environ.get("PELTON_CACHE") or pathlib.Path.home() / ".cache" / "pelton")
GRPCURL = "v1.9.3"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def need(program, what):
    if shutil.which(program) is None:
        pytest.skip(f"no {what} on this machine: there is no `{program}`")


def fetch(command, what, **options):
    """Runs what asks a registry; offline, the test is skipped, but not in CI."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    if result.returncode != 0:
        message = f"{what} cannot be fetched:\n{result.stdout}{result.stderr}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


def go(tools):
    need("go", "Go")
    return {"GOBIN": str(tools), "GOFLAGS": "-mod=readonly"}


def protoc(tools):
    """The one of grpcio-tools, where the system has none."""
    if shutil.which("protoc") is None:
        script = tools / "protoc"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m grpc_tools.protoc "$@"\n')
        script.chmod(0o755)
    return {}


def curl(tools):
    """As much of it as the pages use, where the system has none."""
    if shutil.which("curl") is None:
        script = tools / "curl"
        script.write_text(
            f"#!{sys.executable}\nimport sys, urllib.request as request\n"
            "sys.stdout.buffer.write(request.urlopen(sys.argv[-1]).read())\n"
        )
        script.chmod(0o755)
    return {}


def curl_http2(tools):
    need("curl", "curl")
    version = subprocess.run(["curl", "--version"], capture_output=True, text=True).stdout
    if "HTTP2" not in version:
        pytest.skip("the curl of this machine knows no HTTP/2")
    return {}


def grpcurl(tools):
    program = CACHE / f"grpcurl-{GRPCURL}" / "grpcurl"
    if not program.exists():
        command = ["go", "install", f"github.com/fullstorydev/grpcurl/cmd/grpcurl@{GRPCURL}"]
        fetch(command, "grpcurl", env=os.environ | {"GOBIN": str(program.parent)})
    (tools / "grpcurl").symlink_to(program)
    return {}


def cpp(tools):
    """A compiler that keeps what it made: generated code of gRPC takes half a minute."""
    need("g++", "C++ compiler")
    need("grpc_cpp_plugin", "gRPC for C++")
    if subprocess.run(["pkg-config", "--exists", "grpc++"]).returncode != 0:
        pytest.skip("no gRPC for C++ on this machine: pkg-config does not know grpc++")
    script = tools / "g++"
    script.write_text(KEEPING_COMPILER.format(cache=CACHE / "cpp", compiler=shutil.which("g++")))
    script.chmod(0o755)
    return {}


# What is compiled is told by the arguments, and by all that lies in the folder: sources and
# generated headers.
KEEPING_COMPILER = """#!/bin/bash
set -eu
for word in "$@"; do
    [[ ${{before:-}} != -o ]] || output=$word
    before=$word
done
sources() {{ find . -name '*.cc' -o -name '*.h' | sort | xargs cat; }}
key=$({{ echo "$*"; {compiler} --version; sources; }} | sha256sum | cut -c1-32)
mkdir -p "{cache}"
if [[ ! -e {cache}/$key ]]; then
    {compiler} "$@"
    rm -f "{cache}"/*
    cp "$output" "{cache}/$key.part" && mv "{cache}/$key.part" "{cache}/$key"
fi
cp "{cache}/$key" "$output"
"""


def rust(tools):
    """With a folder of its own in that of the workspace, which keeps what was compiled."""
    need("cargo", "Rust")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "examples"
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    program = ["--locked", "--manifest-path", str(ROOT / "examples" / "rust" / "Cargo.toml")]
    fetch(["cargo", "fetch", *program], "crates of the example", env=environment)
    built = subprocess.run(
        ["cargo", "build", "--quiet", *program], capture_output=True, text=True, env=environment
    )
    assert built.returncode == 0, built.stderr
    return {"CARGO_TARGET_DIR": str(target)}


def java(tools):
    need("javac", "Java compiler")
    need("mvn", "Maven")
    return {"MAVEN_OPTS": f"-Dmaven.repo.local={CACHE / 'maven'}"}


def promtool():
    """The program that checks rules of Prometheus: the system's own, or out of Debian's package,
    which is unpacked and not installed, as that would start a Prometheus."""
    kept = CACHE / "promtool"
    found = shutil.which("promtool") or (kept.exists() and str(kept))
    if found:
        return found
    need("apt-get", "promtool, and no Debian that has it")
    with tempfile.TemporaryDirectory() as folder:
        fetch(["apt-get", "download", "prometheus"], "promtool", cwd=folder)
        package = next(pathlib.Path(folder).glob("*.deb"))
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        # Under its name only when it is whole: others may fetch it at the same time.
        whole = kept.with_name(f"promtool-{os.getpid()}")
        shutil.copy2(pathlib.Path(folder) / "usr/bin/promtool", whole)
        whole.rename(kept)
    return str(kept)

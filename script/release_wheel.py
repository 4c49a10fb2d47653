"""The wheel `pelton-grpc`: `script/wheel` builds it, for the machine that runs this."""

import json
import os
import subprocess

import release_bom

CRATE = "pelton-grpc"


def build(root, release, remapped):
    """Makes the wheel, its bill of materials, and the licences of what is in it. `remapped` are the
    variables that keep paths of this machine out of it."""
    print("== wheel: build", flush=True)
    environment = os.environ | remapped | {"SOURCE_DATE_EPOCH": str(release.time_s)}
    subprocess.run([root / "script/wheel", release.into], env=environment, check=True)
    workspace = root / "crates/python"
    version = version_of(workspace)
    packages = release_bom.packages(workspace, CRATE)
    name = release.into / f"pelton_grpc-{version}"
    bill = release_bom.cyclonedx(packages, version, release.time_s, CRATE)
    name.with_name(f"{name.name}.cdx.json").write_text(bill)
    licences = release_bom.licences(packages, root, CRATE)
    name.with_name(f"{name.name}.licences.txt").write_text(licences)


def version_of(workspace):
    """Not the version of the program: the wheel has one of its own."""
    words = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    metadata = json.loads(subprocess.check_output(words, cwd=workspace))
    return next(package["version"] for package in metadata["packages"] if package["name"] == CRATE)

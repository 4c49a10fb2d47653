"""The packages of Debian and of RPM, of the same files."""

import os
import pathlib
import shutil
import subprocess

SUMMARY = "Key-value and blob server over gRPC"
DESCRIPTION = """Pelton is a durable key-value and blob server that any gRPC client can call,
the command line client for it, and a load generator for any gRPC service."""
MAINTAINER = "The Pelton developers"


def set_modes(root):
    """Gives the files the modes that they have where they are installed, whatever the umask."""
    for folder, folders, files in os.walk(root):
        for place in folders:
            pathlib.Path(folder, place).chmod(0o755)
        for place in files:
            pathlib.Path(folder, place).chmod(0o644)
    root.chmod(0o755)
    (root / "usr/bin/pelton").chmod(0o755)


def environment(release):
    return os.environ | {"SOURCE_DATE_EPOCH": str(release.time_s)}


def deb(root, machine, release, packaging, work):
    """Writes the .deb. It starts the service when it is installed, as Debian's packages do."""
    folder = work / "deb"
    shutil.copytree(root, folder)
    control = folder / "DEBIAN"
    control.mkdir()
    size_kib = sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) // 1024
    description = "\n ".join([SUMMARY, *DESCRIPTION.splitlines()])
    (control / "control").write_text(
        f"Package: pelton\nVersion: {release.version}\nArchitecture: {machine.debian}\n"
        f"Maintainer: {MAINTAINER}\nInstalled-Size: {size_kib}\nSection: database\n"
        f"Priority: optional\nDescription: {description}\n"
    )
    (control / "conffiles").write_text("/etc/pelton.toml\n")
    for script in "postinst", "prerm", "postrm":
        shutil.copy(packaging / "debian" / script, control / script)
        (control / script).chmod(0o755)
    for file in control.iterdir():
        os.utime(file, (release.time_s, release.time_s))
    package = release.into / f"pelton_{release.version}_{machine.debian}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", folder, package],
        env=environment(release),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def entry(root, file):
    """The line of a file in the list of an .rpm."""
    mode = (root / file[1:]).stat().st_mode & 0o777
    settings = "%config(noreplace) " if file.startswith("/etc/") else ""
    return f"%attr({mode:o},root,root) {settings}{file}"


def rpm(root, machine, release, packaging, work):
    """Writes the .rpm. It starts nothing by itself, as is the custom there."""
    top = work / "rpm"
    files = sorted(f"/{file.relative_to(root)}" for file in root.rglob("*") if file.is_file())
    listed = "\n".join(entry(root, file) for file in files)
    spec = (packaging / "pelton.spec.in").read_text()
    for word, value in {
        "VERSION": release.version,
        "SUMMARY": SUMMARY,
        "DESCRIPTION": DESCRIPTION,
        "FILES": listed,
    }.items():
        spec = spec.replace(f"@{word}@", value)
    top.mkdir()
    (top / "pelton.spec").write_text(spec)
    define = {
        "_topdir": top,
        "_rpmdir": release.into,
        "_rpmfilename": f"pelton-{release.version}-1.{machine.rpm}.rpm",
        "_buildhost": "localhost",
        "use_source_date_epoch_as_buildtime": 1,
        "clamp_mtime_to_source_date_epoch": 1,
        "_binary_payload": "w9.gzdio",
        "__strip": "/bin/true",
        "_build_id_links": "none",
    }
    words = [word for name, value in define.items() for word in ("--define", f"{name} {value}")]
    # `rpmbuild` removes the folder that it is given.
    shutil.copytree(root, top / "root")
    subprocess.run(
        [
            "rpmbuild",
            "-bb",
            "--quiet",
            "--target",
            f"{machine.rpm}-linux",
            "--buildroot",
            top / "root",
            *words,
            top / "pelton.spec",
        ],
        env=environment(release),
        check=True,
    )

"""The container image: the program alone, in an OCI archive (OCI Image Format 1.1), made without a
daemon.

What it runs and with which settings is read from packaging/Containerfile, so that an image built
there and this one are the same."""

import gzip
import hashlib
import json
import re
import shlex
import time

import release_tar

# Nobody of the machine, as in images of others that have no root.
USER = 65532


def settings(containerfile):
    """The settings of the last stage of a Containerfile."""
    text = re.sub(r"\\\n", " ", containerfile.read_text())
    stage = text[text.rindex("\nFROM ") :]
    found = {}
    for line in stage.splitlines():
        word, _, rest = line.partition(" ")
        if word and word.isupper():
            found.setdefault(word, []).append(rest)
    return {
        "Env": shlex.split(found["ENV"][0]),
        "Entrypoint": json.loads(found["ENTRYPOINT"][0]),
        "Cmd": json.loads(found["CMD"][0]),
        "User": found["USER"][0],
        "StopSignal": found["STOPSIGNAL"][0],
        "Volumes": {place: {} for place in found["VOLUME"]},
        "ExposedPorts": {f"{port}/tcp": {} for port in found["EXPOSE"][0].split()},
        "Healthcheck": health(found["HEALTHCHECK"][0]),
    }


def health(text):
    """What Docker reads beside the settings of OCI; times are in nanoseconds there."""
    times = {name: int(seconds) * 10**9 for name, seconds in re.findall(r"--(\w+)=(\d+)s", text)}
    command = json.loads(text[text.index("CMD ") + 4 :])
    return {"Test": ["CMD", *command], "Interval": times["interval"], "Timeout": times["timeout"]}


def oci(program, machine, release, containerfile, work):
    """Writes the archive."""
    users = work / "passwd"
    users.write_text(
        f"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/data:/sbin/nologin\n"
    )
    users.chmod(0o644)
    layer = release_tar.pack(
        {"usr/bin/pelton": program, "etc/passwd": users},
        release.time_s,
        ["data", "etc", "usr", "usr/bin"],
        {"data": USER},
    )
    packed = gzip.compress(layer, mtime=0)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.time_s))
    config = {
        "created": created,
        "architecture": machine.oci,
        "os": "linux",
        "config": settings(containerfile),
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": created, "created_by": "script/release"}],
    }
    blobs = {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add(blobs, "application/vnd.oci.image.config.v1+json", as_json(config)),
        "layers": [add(blobs, "application/vnd.oci.image.layer.v1.tar+gzip", packed)],
    }
    described = add(blobs, manifest["mediaType"], as_json(manifest))
    described["platform"] = {"architecture": machine.oci, "os": "linux"}
    described["annotations"] = {
        "org.opencontainers.image.ref.name": release.version,
        "io.containerd.image.name": f"docker.io/library/pelton:{release.version}",
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    }
    contents = {f"blobs/sha256/{name}": content for name, content in blobs.items()}
    contents |= {
        "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": as_json(index),
    }
    files = {}
    for place, content in contents.items():
        files[place] = work / "image" / place
        files[place].parent.mkdir(parents=True, exist_ok=True)
        files[place].write_bytes(content)
        files[place].chmod(0o644)
    archive = release.into / f"pelton-{release.version}-oci-{machine.oci}.tar"
    archive.write_bytes(release_tar.pack(files, release.time_s, ["blobs", "blobs/sha256"]))


def as_json(value):
    return json.dumps(value, indent=1, sort_keys=True).encode()


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def add(blobs, kind, content):
    """Keeps a blob under its checksum, and returns what refers to it."""
    blobs[digest(content).partition(":")[2]] = content
    return {"mediaType": kind, "digest": digest(content), "size": len(content)}

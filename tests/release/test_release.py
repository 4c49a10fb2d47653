"""What script/release made, installed and started: each package in a root of its own that has
nothing of this machine.

Runs as root, in namespaces: the network there is a loopback interface, and what was started ends
with them."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DIST = pathlib.Path(os.environ.get("PELTON_DIST", ROOT / "dist"))
DEBIAN = "bookworm"
# As a small virtual machine has it.
MEMORY = 256 << 20
IS_NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def only(pattern):
    """The one file of that name."""
    found = list(DIST.glob(pattern))
    assert len(found) == 1, (pattern, found)
    return found[0]


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def inside(root, script, variables=None):
    """What a script of sh prints that runs with the root, and sees nothing beside it."""
    prepare = f"""
        ip link set lo up
        mount --bind {root} {root}
        mkdir -p {root}/proc {root}/tmp {root}/dev
        mount -t proc proc {root}/proc
        mount -t tmpfs tmpfs {root}/tmp
        touch {root}/dev/null {root}/dev/urandom
        mount --bind /dev/null {root}/dev/null
        mount --bind /dev/urandom {root}/dev/urandom
    """
    spaces = ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ROOT": str(root)} | (variables or {})
    return run(*spaces, "sh", "-euc", prepare + script, env=environment)


# Waits until the server answers, and writes and reads a value.
TRY = """
    begin=$(date +%s%N)
    $PELTON status --wait 60s --address $ADDRESS
    echo "served after $((($(date +%s%N) - begin) / 1000000)) ms"
    $PELTON put key value --address $ADDRESS
    test "$($PELTON get key --address $ADDRESS)" = value
    $PELTON status --address $ADDRESS --output json
    kill $SERVER
    wait $SERVER
    echo stopped
"""


def assert_served(printed):
    assert "SERVING" in printed and printed.endswith("stopped\n"), printed
    print(re.search(r"served after \d+ ms", printed)[0])


@pytest.fixture(scope="session")
def debian(tmp_path_factory):
    """Makes a fresh Debian, of the smallest kind; it is fetched once."""
    kept = pathlib.Path(os.environ.get("PELTON_CACHE", "/var/cache/pelton")) / f"{DEBIAN}.tar"
    if not kept.exists():
        folder = tmp_path_factory.mktemp("debian") / "root"
        run("debootstrap", "--variant=minbase", DEBIAN, str(folder))
        kept.parent.mkdir(parents=True, exist_ok=True)
        run("tar", "--create", "--file", f"{kept}.new", "--directory", str(folder), ".")
        os.replace(f"{kept}.new", kept)

    def make(folder):
        folder.mkdir()
        run("tar", "--extract", "--file", str(kept), "--directory", str(folder))
        return folder

    return make


def test_every_file_has_its_checksum():
    lines = (DIST / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(sums) == {file.name for file in DIST.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((DIST / name).read_bytes()).hexdigest() == digest, name


def test_the_page_about_installing_names_files_that_are_there():
    page = (ROOT / "docs/install.md").read_text()
    named = set(re.findall(r"\bdist/(pelton[\w.-]+)", page))
    named |= set(re.findall(r"`(pelton[\w.-]+json)`", page))
    is_of_other_machine = {"amd64": "aarch64|arm64", "arm64": "x86_64|amd64"}[IS_NATIVE]
    here = {name for name in named if not re.search(is_of_other_machine, name)}
    assert len(named) >= 5
    assert here - {file.name for file in DIST.iterdir()} == set()
    run("sha256sum", "--check", "--ignore-missing", "SHA256SUMS", cwd=DIST)


def programs():
    """The program of each archive, by the archive's name."""
    for archive in DIST.glob("*-linux-*.tar.gz"):
        with tarfile.open(archive) as opened:
            yield archive.name, opened.extractfile(f"{archive.name[:-7]}/pelton").read()


def test_the_program_needs_no_library_and_names_no_place_of_who_built_it(tmp_path):
    found = dict(programs())
    assert found
    for name, program in found.items():
        file = tmp_path / "pelton"
        file.write_bytes(program)
        assert "NEEDED" not in run("readelf", "--dynamic", str(file)), name
        assert "INTERP" not in run("readelf", "--program-headers", str(file)), name
        for place in str(ROOT), str(pathlib.Path.home() / ".cargo"):
            assert place.encode() not in program, (name, place)


DNS = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    asked, peer = server.recvfrom(512)
    end = asked.index(0, 12) + 5
    is_v4 = asked[end - 4:end - 2] == bytes([0, 1])
    answer = bytes([192, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 127, 0, 0, 1]) if is_v4 else b""
    head = asked[:2] + bytes([0x81, 0x80, 0, 1, 0, int(is_v4), 0, 0, 0, 0])
    server.sendto(head + asked[12:end] + answer, peer)
"""


def test_names_are_resolved_where_there_is_nothing_but_the_program(tmp_path):
    program = next(program for name, program in programs() if platform.machine() in name)
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "pelton").write_bytes(program)
    (root / "pelton").chmod(0o755)
    (root / "etc/hosts").write_text("127.0.0.1 database\n")
    (root / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "dns.py").write_text(DNS)
    for address in "database:1978", "database.example:1978":
        script = f"""
            python3 {tmp_path}/dns.py & sleep 0.5
            PELTON="chroot $ROOT /pelton" ADDRESS={address}
            chroot $ROOT /pelton serve --durability volatile --listen 127.0.0.1:1978 & SERVER=$!
        """
        assert_served(inside(root, script + TRY))


# Limits the memory of what follows, where the machine lets it.
LIMITED = f"""
    for place in /sys/fs/cgroup/memory:memory.limit_in_bytes /sys/fs/cgroup:memory.max; do
        group=${{place%:*}}/pelton-release-test
        if mkdir -p $group 2>/dev/null && echo {MEMORY} 2>/dev/null >$group/${{place#*:}}; then
            echo $$ >$group/cgroup.procs && echo limited
            break
        fi
    done
"""


def serve_as_installed():
    """Starts the server as the unit does: as its user, with its settings."""
    return (
        LIMITED
        + """
        test "$(chroot $ROOT stat --format %U:%a /var/lib/pelton)" = pelton:700
        PELTON="chroot $ROOT pelton" ADDRESS=127.0.0.1:1978
        chroot --userspec pelton:pelton $ROOT \\
            /usr/bin/pelton serve --config /etc/pelton.toml & SERVER=$!
    """
    )


def test_the_package_of_debian_is_installed_serves_and_is_removed(debian, tmp_path):
    root = debian(tmp_path / "root")
    shutil.copy(only(f"pelton_*_{IS_NATIVE}.deb"), root / "pelton.deb")
    inside(root, "chroot $ROOT dpkg --install /pelton.deb")
    for _ in range(2):
        printed = inside(root, serve_as_installed() + TRY)
        assert_served(printed)
        print("within 256 MiB" if "limited" in printed else "SKIPPED: no limit of memory here")
    # Settings that were changed are kept, and so are the data, also by a purge.
    with open(root / "etc/pelton.toml", "a") as settings:
        settings.write("# changed\n")
    inside(root, "chroot $ROOT dpkg --install /pelton.deb")
    assert (root / "etc/pelton.toml").read_text().endswith("# changed\n")
    inside(root, "chroot $ROOT dpkg --purge pelton")
    assert not (root / "usr/bin/pelton").exists() and not (root / "etc/pelton.toml").exists()
    assert list((root / "var/lib/pelton/data").iterdir())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_the_unit_is_sound(debian, tmp_path):
    root = debian(tmp_path / "root")
    shutil.copy(only(f"pelton_*_{IS_NATIVE}.deb"), root / "pelton.deb")
    inside(root, "chroot $ROOT dpkg --install /pelton.deb")
    # Of the units that it stands on, the smallest Debian has none.
    (root / "usr/lib/systemd/system/sysinit.target").write_text("[Unit]\nDescription=a stand-in\n")
    unit = "usr/lib/systemd/system/pelton.service"
    words = ["systemd-analyze", "verify", f"--root={root}", "--man=no", f"/{unit}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    told = [line for line in done.stderr.splitlines() if "pelton" in line]
    assert not told, told
    security = ["systemd-analyze", "security", "--offline=true", "--threshold=20"]
    run(*security, str(root / unit))


def test_the_package_of_rpm_is_installed_and_serves(debian, tmp_path):
    root = debian(tmp_path / "root")
    shutil.copy(
        only("pelton-*.x86_64.rpm" if IS_NATIVE == "amd64" else "pelton-*.aarch64.rpm"),
        root / "p.rpm",
    )
    # The smallest Debian has no database of packages that would know its shell.
    run("rpm", "--root", str(root), "--initdb")
    run("rpm", "--root", str(root), "--install", "--nodeps", str(root / "p.rpm"))
    assert_served(inside(root, serve_as_installed() + TRY))
    run("rpm", "--root", str(root), "--erase", "--nodeps", "pelton")
    assert not (root / "usr/bin/pelton").exists()
    assert list((root / "var/lib/pelton/data").iterdir())


def unpack_image(folder):
    """The root of the image, and its settings."""
    with tarfile.open(only(f"pelton-*-oci-{IS_NATIVE}.tar")) as archive:

        def blob(described):
            content = archive.extractfile("blobs/sha256/" + described["digest"][7:]).read()
            assert len(content) == described["size"]
            assert "sha256:" + hashlib.sha256(content).hexdigest() == described["digest"]
            return content

        index = json.load(archive.extractfile("index.json"))
        manifest = json.loads(blob(index["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        layer = gzip.decompress(blob(manifest["layers"][0]))
    assert "sha256:" + hashlib.sha256(layer).hexdigest() == config["rootfs"]["diff_ids"][0]
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        archive.extractall(folder, filter="fully_trusted")
    return config["config"]


def test_the_image_serves_as_its_user_on_a_read_only_root(tmp_path):
    root = tmp_path / "root"
    settings = unpack_image(root)
    user = settings["User"]
    assert user == "65532:65532" and os.stat(root / "data").st_uid == 65532
    variables = dict(line.split("=", 1) for line in settings["Env"])
    health = settings["Healthcheck"]["Test"]
    command = " ".join(settings["Entrypoint"] + settings["Cmd"])
    assert health[0] == "CMD"
    script = f"""
        mount -t tmpfs -o uid=65532,gid=65532,mode=700 tmpfs $ROOT/data
        mount -o remount,bind,ro $ROOT
        PELTON="chroot --userspec {user} $ROOT /usr/bin/pelton" ADDRESS=unix:/data/pelton.sock
        chroot --userspec {user} $ROOT {command} & SERVER=$!
        $PELTON status --wait 60s --address $ADDRESS >/dev/null
        chroot --userspec {user} $ROOT {" ".join(health[1:])}
    """
    assert_served(inside(root, script + TRY, variables))


@pytest.mark.skipif(IS_NATIVE == "arm64", reason="this machine is one")
@pytest.mark.skipif(not shutil.which("qemu-aarch64-static"), reason="no qemu-aarch64-static")
@pytest.mark.skipif(not list(DIST.glob("*-linux-aarch64.tar.gz")), reason="made for one machine")
def test_the_program_of_the_other_machine_serves(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "pelton").write_bytes(next(p for name, p in programs() if "aarch64" in name))
    shutil.copy(shutil.which("qemu-aarch64-static"), root / "qemu")
    for name in "pelton", "qemu":
        (root / name).chmod(0o755)
    script = """
        PELTON="chroot $ROOT /qemu /pelton" ADDRESS=127.0.0.1:1978
        chroot $ROOT /qemu /pelton serve --data /tmp/data & SERVER=$!
    """
    assert_served(inside(root, script + TRY))


@pytest.mark.parametrize("name", ["pelton-", "pelton_grpc-"])
def test_the_bill_and_the_licences_name_every_crate(name):
    bill = json.loads(only(f"{name}*.cdx.json").read_text())
    licences = only(f"{name}*.licences.txt").read_text()
    assert bill["bomFormat"] == "CycloneDX" and len(bill["components"]) > 20
    names = {component["bom-ref"] for component in bill["components"]}
    names.add(bill["metadata"]["component"]["bom-ref"])
    for entry in bill["dependencies"]:
        assert entry["ref"] in names and set(entry["dependsOn"]) <= names
    for component in bill["components"]:
        assert component["licenses"][0]["expression"], component["name"]
        if "hashes" in component:
            name = f"- {component['name']} {component['version']}: "
            assert name in licences, name


# Reads a value that the server has, over the channel of the wheel, without grpcio.
CALL = """
import sys
import pelton_grpc
channel = pelton_grpc.insecure_channel(sys.argv[1])
get = channel.unary_unary("/pelton.v1.KeyValue/Get")
assert b"of a test" in get(b"\\x12\\x03key", timeout=60)
try:
    channel.unary_unary("/none.None/None")(b"", timeout=60)
except pelton_grpc.RpcError as error:
    assert error.code() is pelton_grpc.StatusCode.UNIMPLEMENTED
print(pelton_grpc.__file__)
"""


def test_the_wheel_is_installed_and_calls_the_server(tmp_path):
    wheel = only("pelton_grpc-*.whl")
    # With a tag that pip takes on other machines: of those whose C library is as new.
    assert re.fullmatch(rf".*-cp39-abi3-manylinux_2_\d+_{platform.machine()}.*", wheel.name)
    run("python3", "-m", "venv", str(tmp_path / "env"))
    python = str(tmp_path / "env/bin/python")
    words = ["--quiet", "--disable-pip-version-check", "--no-index", "--only-binary=:all:"]
    run(python, "-m", "pip", "install", *words, str(wheel))
    program = tmp_path / "pelton"
    program.write_bytes(next(of for name, of in programs() if platform.machine() in name))
    program.chmod(0o755)
    server = subprocess.Popen(
        [program, "serve", "--durability", "volatile", "--listen", f"unix:{tmp_path}/socket"],
        stdout=subprocess.DEVNULL,
    )
    try:
        address = f"unix:{tmp_path}/socket"
        run(str(program), "status", "--wait", "60s", "--address", address)
        run(str(program), "put", "key", "of a test", "--address", address)
        assert str(tmp_path) in run(python, "-c", CALL, address, cwd=tmp_path)
    finally:
        server.kill()
        server.wait()


def test_the_wheel_needs_no_newer_c_library_than_its_tag_says_and_names_no_place(tmp_path):
    wheel = only("pelton_grpc-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    for name, content in contents.items():
        for place in str(ROOT), str(pathlib.Path.home() / ".cargo"):
            assert place.encode() not in content, (name, place)
    [library] = [content for name, content in contents.items() if name.endswith(".so")]
    (tmp_path / "library").write_bytes(library)
    symbols = run("readelf", "--version-info", str(tmp_path / "library"))
    newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols))
    tagged = int(re.search(r"manylinux_2_(\d+)_", wheel.name)[1])
    assert newest <= tagged, wheel.name
    print(f"the wheel needs glibc 2.{newest}")

"""What the scripts of the packages do to the service when a package is installed, renewed and
removed: run with programs in the place of systemd's, which note what they are asked for."""

import collections
import os
import re
import subprocess
import sys

import pytest
from pages import ROOT

PACKAGING = ROOT / "packaging"
DEBIAN = PACKAGING / "debian"
SPEC = PACKAGING / "pelton.spec.in"

START, RESTART = "systemctl enable --now pelton", "systemctl try-restart pelton"
RELOAD, STOP = "systemctl daemon-reload", "systemctl disable --now pelton"


@pytest.fixture
def machine(tmp_path):
    """Runs a text as a script of a package, and returns what it asked other programs for."""
    programs, asked = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    (tmp_path / "systemd").mkdir()
    for name in ("systemctl", "systemd-sysusers", "install"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{asked}\n')
        program.chmod(0o755)

    def run(text, *words):
        # The folder of the service is there since the first installation.
        (tmp_path / "data").mkdir(exist_ok=True)
        for place, here in (("/run/systemd/system", "systemd"), ("/var/lib/pelton", "data")):
            text = text.replace(place, str(tmp_path / here))
        asked.write_text("")
        environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-euc", text, "sh", *words], env=environment, check=True, timeout=60)
        return asked.read_text().splitlines()

    return run


def of_service(asked):
    return [line for line in asked if line in (START, RESTART, STOP)]


def test_the_package_of_debian_starts_renews_and_stops_the_service(machine):
    postinst, prerm = ((DEBIAN / name).read_text() for name in ("postinst", "prerm"))
    for version in ([""], ["1"]):
        # The second time it comes back after it was removed, and its settings were kept.
        asked = machine(postinst, "configure", *version)
        assert of_service(asked) == [START]
        assert asked.index(RELOAD) < asked.index(START)
        assert any(line.startswith("systemd-sysusers ") for line in asked)
        assert any(line.startswith("install -d -o pelton -g pelton -m 700 ") for line in asked)
        for _ in range(2):
            assert machine(prerm, "upgrade", "2") == []
            assert of_service(machine(postinst, "configure", "1")) == [RESTART]
        # A removal that fails leaves it as it was.
        for _ in range(2):
            assert machine(prerm, "remove") == [STOP]
            assert machine(postinst, "abort-remove") == [START]
            assert machine(postinst, "abort-remove") == []
        assert machine(postinst, "abort-upgrade", "2") == []
        assert machine(prerm, "remove") == [STOP]
    assert machine((DEBIAN / "postrm").read_text(), "remove") == [RELOAD]


def scriptlet(name):
    """A script of the .rpm."""
    found = re.search(rf"^%{name}\n(.*?)(?=^%|\Z)", SPEC.read_text(), re.MULTILINE | re.DOTALL)
    return found[1]


def test_the_package_of_rpm_renews_and_stops_the_service_and_starts_nothing(machine):
    asked = machine(scriptlet("post"), "1")
    assert of_service(asked) == [] and RELOAD in asked
    for _ in range(2):
        # The new one is there before the old one goes.
        assert of_service(machine(scriptlet("post"), "2")) == [RESTART]
        assert machine(scriptlet("preun"), "1") == []
    assert machine(scriptlet("preun"), "0") == [STOP]


def test_settings_that_were_changed_are_kept_by_both_packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "script"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import release_packages

    root, into = tmp_path / "root", tmp_path / "into"
    into.mkdir()
    for place in ("usr/bin/pelton", "etc/pelton.toml"):
        (root / place).parent.mkdir(parents=True)
        (root / place).write_text("some content\n")
    release_packages.set_modes(root)
    machine = collections.namedtuple("Machine", "debian rpm")("all", "noarch")
    release = collections.namedtuple("Release", "into version time_s")(into, "1.2.3", 1_700_000_000)

    def shown(*words):
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout

    for tool, pack in (("dpkg-deb", release_packages.deb), ("rpmbuild", release_packages.rpm)):
        if subprocess.run(["which", tool], capture_output=True).returncode == 0:
            pack(root, machine, release, PACKAGING, tmp_path)
    for package in into.glob("*.deb"):
        assert shown("dpkg-deb", "--info", package, "conffiles") == "/etc/pelton.toml\n"
        for script in ("postinst", "prerm", "postrm"):
            assert shown("dpkg-deb", "--info", package, script) == (DEBIAN / script).read_text()
    for package in into.glob("*.rpm"):
        listed = "[%{FILENAMES} %{FILEFLAGS:fflags} %{FILEMODES:octal}\n]"
        files = shown("rpm", "--query", "--package", package, "--queryformat", listed)
        assert "/etc/pelton.toml cn 100644\n" in files
        assert "/usr/bin/pelton  100755\n" in files


def test_the_image_has_the_times_of_its_health_check_in_nanoseconds(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "script"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import release_image

    settings = release_image.settings(PACKAGING / "Containerfile")
    health = settings["Healthcheck"]
    assert (health["Interval"], health["Timeout"]) == (10 * 10**9, 3 * 10**9)
    assert health["Test"][:2] == ["CMD", "/usr/bin/pelton"]
    assert settings["User"] == f"{release_image.USER}:{release_image.USER}"
    assert settings["Volumes"] == {"/data": {}}
    assert set(settings["ExposedPorts"]) == {"1978/tcp", "9178/tcp"}


def test_a_release_empties_no_folder_of_something_else(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("x")
    for _ in range(2):
        command = [sys.executable, ROOT / "script" / "release", "--into", tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert f"{tmp_path} has files and is no release" in done.stderr
        assert kept.read_text() == "x"

"""The model of a device that loses power, by itself: what it keeps, and what it may lose."""

from device import Device
from losses import KEEP_NAMES
from recording import Call

ROOT = "/root"


class Script:
    """Feeds calls to a device, one after the other."""

    def __init__(self, is_dropped=lambda *what: False):
        self.device, self.place = Device(ROOT, is_dropped), 0
        self.next_descriptor = 10

    def call(self, name, arguments, result=0, data=None):
        self.place += 2
        call = Call(name, arguments, self.place, self.place + 1, result, data)
        self.device.begin(call)
        self.device.end(call)

    def open(self, path, flags="O_RDWR|O_CREAT"):
        self.next_descriptor += 1
        name = hexadecimal(f"{ROOT}/{path}")
        arguments = f'AT_FDCWD<{hexadecimal("/")}>, "{name}", {flags}, 0666'
        self.call("openat", arguments, self.next_descriptor)
        return f"{self.next_descriptor}<{hexadecimal(f'{ROOT}/{path}'.rstrip('/'))}>"

    def write(self, file, data, offset):
        self.call("pwrite64", f'{file}, "", {len(data)}, {offset})', len(data), data)

    def sync(self, file):
        self.call("fsync", f"{file})")

    def rename(self, source, target):
        paths = [hexadecimal(f"{ROOT}/{path}") for path in (source, target)]
        self.call("rename", '"{}", "{}")'.format(*paths))

    def state(self, data, names, seed=1):
        state = self.device.state(data, names, seed)
        return {path: content and content.bytes for path, content in state.items()}


def hexadecimal(text):
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def test_a_synced_file_without_a_synced_folder_is_lost():
    script = Script()
    file = script.open("file")
    script.write(file, b"content", 0)
    script.sync(file)
    assert script.state("none", "none") == {}
    assert script.state("none", "all") == {"file": b"content"}


def test_a_synced_folder_has_an_unsynced_file_without_its_bytes():
    script = Script()
    script.write(script.open("file"), b"content", 0)
    script.sync(script.open("", "O_RDONLY"))
    assert script.state("none", "none") == {"file": b""}
    assert script.state("lengths", "none") == {"file": bytes(7)}
    assert script.state("all", "none") == {"file": b"content"}


def test_a_rename_is_there_as_a_whole_or_not_at_all():
    script = Script()
    old, new = script.open("final"), script.open("new")
    script.write(old, b"old", 0)
    script.write(new, b"new", 0)
    for file in (old, new, script.open("", "O_RDONLY")):
        script.sync(file)
    script.rename("new", "final")
    before, after = {"final": b"old", "new": b"new"}, {"final": b"new"}
    assert script.state("none", "none") == before
    assert script.state("none", "all") == after
    for seed in range(20):
        for names in KEEP_NAMES:
            assert script.state("some", names, seed) in (before, after)


def test_a_write_is_torn_at_sectors_and_later_ones_may_come_first():
    script = Script()
    file = script.open("file")
    script.write(file, b"0" * 4096, 0)
    script.sync(file)
    script.sync(script.open("", "O_RDONLY"))
    script.write(file, b"1" * 2048, 0)
    script.write(file, b"2" * 1024, 1024)
    found = {script.state("some", "all", seed)["file"] for seed in range(300)}
    sectors = {tuple(one[at : at + 1] for at in range(0, 4096, 512)) for one in found}
    for one in found:
        assert all(one[at : at + 512] == one[at : at + 1] * 512 for at in range(0, 4096, 512))
    assert any(one[0] == b"0" and one[2] == b"2" for one in sectors), "a later write came first"
    assert any(one[0] == b"1" and one[2] == b"0" for one in sectors)
    assert {one[4:] for one in sectors} == {(b"0",) * 4}, "what was synced has changed"


def test_a_sync_covers_only_what_was_done_before_it_began():
    script = Script()
    file = script.open("file")
    script.sync(script.open("", "O_RDONLY"))
    sync = Call("fdatasync", f"{file})", 100, 103, 0)
    write = Call("pwrite64", f'{file}, "", 3, 0)', 99, 102, 3, b"abc")
    script.device.begin(write)
    script.device.begin(sync)
    script.device.end(write)
    script.device.end(sync)
    assert script.state("none", "none") == {"file": b""}
    script.sync(file)
    assert script.state("none", "none") == {"file": b"abc"}


def test_a_removed_file_may_be_back_with_what_was_synced():
    script = Script()
    file = script.open("file")
    script.write(file, b"synced", 0)
    script.sync(file)
    script.sync(script.open("", "O_RDONLY"))
    script.write(file, b"more", 6)
    script.call("unlink", f'"{hexadecimal(ROOT + "/file")}")')
    assert script.state("none", "none") == {"file": b"synced"}
    assert script.state("none", "all") == {}


def test_a_dropped_sync_makes_nothing_durable_and_is_noted():
    script = Script(is_dropped=lambda path, *_: path == "file")
    file = script.open("file")
    script.write(file, b"content", 0)
    assert not script.device.has_withheld()
    script.sync(file)
    script.sync(script.open("", "O_RDONLY"))
    assert script.device.has_withheld()
    assert script.state("none", "none") == {"file": b""}


def test_files_that_were_there_before_are_durable():
    script = Script()
    script.device.load({"folder": None, "folder/file": b"content"})
    assert script.state("none", "none") == {"folder": None, "folder/file": b"content"}

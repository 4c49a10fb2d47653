"""A model of a disk that loses power: what a run has made durable, and what it may lose.

Of each file there are the *durable* bytes, which the last sync has brought to the device, and the
changes since, in order. Of each folder there are the durable names, and of all folders together
the changes of names since. A state after a power loss is what is durable, and some part of the
rest: see losses.py.
"""

import itertools
import os
import random
import re

from losses import KEEP_DATA, KEEP_NAMES, Change, Content


class Unsupported(Exception):
    """A call that changes files in a way that this model does not know."""


class File:
    """A file, whatever names it has."""

    def __init__(self):
        self.content = bytearray()
        # What was durable once, and the durable changes since: put together when it is asked for.
        self.base = Content(b"")
        self.settled = []
        self.pending = []
        self.cached = None

    def add(self, change):
        self.pending.append(change)
        change.apply(self.content)
        self.cached = None

    def settle(self, covered):
        """Makes changes durable."""
        covered = set(covered)
        self.settled += [change for change in self.pending if change in covered]
        self.pending = [change for change in self.pending if change not in covered]

    @property
    def durable(self):
        if self.settled:
            content = bytearray(self.base.bytes)
            for change in self.settled:
                change.apply(content)
            self.base, self.settled = Content(bytes(content)), []
        return self.base

    def whole(self):
        if self.cached is None:
            self.cached = Content(bytes(self.content))
        return self.cached


class Folder:
    def __init__(self):
        self.names = {}
        self.durable = {}


class Naming:
    """A change of names that happens as a whole: (folder, name, node before, node after)."""

    __slots__ = ("is_done", "is_withheld", "parts")

    def __init__(self, *parts):
        self.parts = parts
        self.is_done = self.is_withheld = False

    def apply(self, names_of):
        for folder, name, before, after in self.parts:
            names = names_of(folder)
            if after is not None:
                names[name] = after
            elif names.get(name) is before:
                del names[name]


class Device:
    """Follows the calls below `root`, in the order of their beginnings and ends.

    `is_dropped(path, name, is_removed)` says what syncs are taken for not having done, to see
    whether that is noticed: for the bytes of a file, or for a name in a folder.
    """

    def __init__(self, root, is_dropped=lambda *what: False):
        self.root_path = str(root)
        self.root = Folder()
        self.is_dropped = is_dropped
        self.descriptors = {}
        # Changes of names that no sync has covered, in their order.
        self.namings = []
        self.dirty = set()
        # What the end of each call has to do: by the call's identity.
        self.open_ends = {}
        self.copies = {}

    def load(self, files):
        """Begins with files that are durable: a dict from path to bytes, None for a folder."""
        folders = {"": self.root}
        for path in sorted(files):
            above, _, name = path.rpartition("/")
            if files[path] is None:
                node = folders[path] = Folder()
            else:
                node = File()
                node.content = bytearray(files[path])
                node.base = node.whole()
            folders[above].names[name] = folders[above].durable[name] = node

    # Paths and descriptors

    def is_inside(self, path):
        return path == self.root_path or path.startswith(self.root_path + "/")

    def relative(self, path):
        return os.path.relpath(path, self.root_path)

    def find(self, path):
        node = self.root
        for name in self.parts_of(path):
            node = node.names.get(name) if isinstance(node, Folder) else None
        return node

    def parts_of(self, path):
        relative = self.relative(os.path.normpath(path))
        return [] if relative == "." else relative.split("/")

    def folder_and_name(self, path):
        path = os.path.normpath(path)
        folder = self.find(os.path.dirname(path))
        assert isinstance(folder, Folder), f"no folder for {path}"
        return folder, os.path.basename(path)

    def file_of(self, call):
        found = self.descriptors.get(call.descriptor)
        return found if found and isinstance(found.node, File) else None

    def is_sync(self, call):
        """Whether a call syncs a file or folder below the root."""
        return call.name in ("fsync", "fdatasync") and call.descriptor in self.descriptors

    # Calls

    def begin(self, call):
        """A call begins: from now on a part of it may have happened."""
        handler = getattr(self, "begin_" + ALIASES.get(call.name, call.name), None)
        if handler:
            done = handler(call)
            if done:
                self.open_ends[id(call)] = done

    def end(self, call):
        """A call ends: it has happened. Returns what it was, for those that choose crash points."""
        done = self.open_ends.pop(id(call), None)
        return done() if done else None

    def process_ended(self):
        """A process has ended, which closes its descriptors and loses nothing else."""
        self.descriptors.clear()
        self.open_ends.clear()

    def begin_open(self, call):
        path = call.paths[0]
        if not self.is_inside(path) or call.result is None or call.result < 0:
            return None
        flags = call.arguments
        node = self.find(path)
        naming = None
        if node is None:
            assert "O_CREAT" in flags or call.name == "creat", f"{path} is opened and not known"
            node = File()
            folder, name = self.folder_and_name(path)
            naming = self.add_naming((folder, name, None, node))
        truncation = None
        if ("O_TRUNC" in flags or call.name == "creat") and node.content:
            truncation = self.add_change(node, Change(length=0))

        def done():
            self.descriptors[call.result] = Opened(node, is_append="O_APPEND" in flags)
            if truncation:
                truncation.is_done = True
            if naming:
                naming.is_done = True
                return "name"
            return None

        return done

    def begin_close(self, call):
        self.descriptors.pop(call.descriptor, None)

    def begin_dup(self, call):
        found = self.descriptors.get(call.descriptor)
        if found and (call.name != "fcntl" or "F_DUPFD" in call.arguments):
            return lambda: self.descriptors.__setitem__(call.result, found)
        return None

    def begin_lseek(self, call):
        file = self.file_of(call)
        if file and call.result is not None and call.result >= 0:
            file.position = call.result

    def begin_write(self, call):
        file = self.file_of(call)
        if not file or (call.result is not None and call.result <= 0):
            return None
        data = call.data if call.result is None else call.data[: call.result]
        at = len(file.node.content) if file.is_append else file.position
        file.position = at + len(data)
        return self.change(file.node, Change(at, data))

    def begin_pwrite64(self, call):
        file = self.file_of(call)
        if not file or (call.result is not None and call.result <= 0):
            return None
        data = call.data if call.result is None else call.data[: call.result]
        return self.change(file.node, Change(call.numbers[-1], data))

    def begin_ftruncate(self, call):
        file = self.file_of(call)
        if not file or call.result != 0:
            return None
        return self.change(file.node, Change(length=call.numbers[-1]))

    def begin_fallocate(self, call):
        file = self.file_of(call)
        if not file or call.result != 0:
            return None
        words = call.arguments.split(">, ", 1)[1].split(", ")
        if words[0] != "0":
            raise Unsupported(f"fallocate with {words[0]}")
        length = int(words[1]) + int(re.match(r"\d+", words[2])[0])
        return self.change(file.node, Change(length=length, only_grows=True))

    def begin_copy_file_range(self, call):
        """Copies from the position of one descriptor to that of another, as the standard library
        does."""
        names = re.findall(r"(\d+)<([^>]*)>", call.arguments)
        if call.name == "sendfile":
            names.reverse()
        source, target = (self.descriptors.get(int(number)) for number, _ in names[:2])
        if not target or not call.result or call.result < 0:
            return None
        if not source or "NULL" not in call.arguments:
            raise Unsupported(f"{call.name} from elsewhere or from an offset")
        data = bytes(source.node.content[source.position : source.position + call.result])
        at = target.position
        source.position += call.result
        target.position += call.result
        return self.change(target.node, Change(at, data))

    def begin_fsync(self, call):
        """What was done before a sync began is durable when it has ended."""
        opened = self.descriptors.get(call.descriptor)
        if not opened or call.result is None:
            return None
        assert call.result == 0, f"a sync has failed: {call.arguments}"
        node, path = opened.node, self.relative(call.descriptor_name)
        if isinstance(node, File):
            covered = [change for change in node.pending if change.is_done]
        else:
            covered = [naming for naming in self.namings if naming.is_done]
            covered = [one for one in covered if any(part[0] is node for part in one.parts)]
        what = {one: self.what_of(path, one) for one in covered}

        def done():
            kept = []
            for one in covered:
                one.is_withheld = self.is_dropped(*what[one])
                if not one.is_withheld:
                    kept.append(one)
            if isinstance(node, File):
                node.settle(kept)
                if not node.pending:
                    self.dirty.discard(node)
            else:
                self.settle_names(kept)
            return ("sync", set(what.values()))

        return done

    def what_of(self, path, one):
        """Returns what a sync is of: a path, and for a folder a name and whether it is gone."""
        if isinstance(one, Change):
            return path, None, False
        _, name, _, after = one.parts[-1]
        return path, name, after is None

    def settle_names(self, covered):
        for naming in covered:
            if naming in self.namings:
                naming.apply(lambda folder: folder.durable)
                self.namings.remove(naming)

    def begin_rename(self, call):
        source, target = call.paths
        if call.result != 0 or not self.is_inside(target):
            return None
        if "RENAME_" in call.arguments.rpartition('"')[2]:
            raise Unsupported("renameat2 with flags")
        node = self.find(source)
        from_folder, from_name = self.folder_and_name(source)
        to_folder, to_name = self.folder_and_name(target)
        gone = (from_folder, from_name, node, None)
        return self.naming(gone, (to_folder, to_name, to_folder.names.get(to_name), node))

    def begin_link(self, call):
        source, target = call.paths
        if call.result != 0 or not self.is_inside(target):
            return None
        folder, name = self.folder_and_name(target)
        node = self.find(source)
        assert node is not None, f"a link to {source}, which is not known"
        return self.naming((folder, name, None, node))

    def begin_unlink(self, call):
        path = call.paths[0]
        if call.result != 0 or not self.is_inside(path):
            return None
        folder, name = self.folder_and_name(path)
        return self.naming((folder, name, folder.names[name], None))

    def begin_mkdir(self, call):
        path = call.paths[0]
        if call.result != 0 or not self.is_inside(path):
            return None
        folder, name = self.folder_and_name(path)
        return self.naming((folder, name, None, Folder()))

    def begin_symlink(self, call):
        if self.is_inside(call.paths[-1]):
            raise Unsupported(call.name)

    def begin_mmap(self, call):
        is_shared = "MAP_SHARED" in call.arguments and "PROT_WRITE" in call.arguments
        for name in re.findall(r"\d+<(\\x[^>]*)>", call.arguments) if is_shared else ():
            if self.is_inside(text_of(name)):
                raise Unsupported("a file is mapped to be written")

    def begin_splice(self, call):
        paths = map(text_of, re.findall(r"<(\\x[^>]*)>", call.arguments))
        if any(map(self.is_inside, paths)):
            raise Unsupported(call.name)

    def begin_io_uring_setup(self, call):
        raise Unsupported(call.name)

    def has_withheld(self):
        """Whether something can be lost only because a sync was taken for not done."""
        changes = (change for file in self.dirty for change in file.pending)
        return any(one.is_withheld for one in itertools.chain(self.namings, changes))

    # Changes

    def add_change(self, file, change):
        file.add(change)
        self.dirty.add(file)
        return change

    def change(self, file, change):
        self.add_change(file, change)

        def done():
            change.is_done = True
            return "data"

        return done

    def add_naming(self, *parts):
        naming = Naming(*parts)
        naming.apply(lambda folder: folder.names)
        self.namings.append(naming)
        return naming

    def naming(self, *parts):
        naming = self.add_naming(*parts)

        def done():
            naming.is_done = True
            return "name"

        return done

    # States

    def state(self, data, names, seed):
        """Returns a state after a power loss: a dict from path to Content, None for a folder."""
        source = random.Random(seed)
        kept = KEEP_NAMES[names](self.namings, source)
        trees = {}

        def names_of(folder):
            if folder not in trees:
                trees[folder] = dict(folder.durable)
            return trees[folder]

        for naming in kept:
            naming.apply(names_of)
        contents = {}
        state = {}
        walk = [("", self.root)]
        while walk:
            prefix, folder = walk.pop()
            for name, node in sorted(names_of(folder).items()):
                path = prefix + name
                if isinstance(node, Folder):
                    state[path] = None
                    walk.append((path + "/", node))
                else:
                    if node not in contents:
                        contents[node] = KEEP_DATA[data](node, source)
                    state[path] = contents[node]
        return state

    def whole(self):
        """Returns what a process sees: nothing is lost."""
        state, walk = {}, [("", self.root)]
        while walk:
            prefix, folder = walk.pop()
            for name, node in folder.names.items():
                if isinstance(node, Folder):
                    state[prefix + name] = None
                    walk.append((prefix + name + "/", node))
                else:
                    state[prefix + name] = node.whole()
        return state


class Opened:
    """What a descriptor stands for."""

    def __init__(self, node, is_append):
        self.node, self.is_append, self.position = node, is_append, 0


def text_of(digits):
    return bytes.fromhex(digits.replace("\\x", "")).decode()


ALIASES = {
    "openat": "open",
    "creat": "open",
    "openat2": "open",
    "dup2": "dup",
    "dup3": "dup",
    "fcntl": "dup",
    "writev": "write",
    "pwritev": "pwrite64",
    "fdatasync": "fsync",
    "sendfile": "copy_file_range",
    "renameat": "rename",
    "renameat2": "rename",
    "linkat": "link",
    "unlinkat": "unlink",
    "rmdir": "unlink",
    "mkdirat": "mkdir",
    "symlinkat": "symlink",
    "truncate": "symlink",
    "pwritev2": "splice",
}

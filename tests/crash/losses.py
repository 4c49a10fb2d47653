"""What a power loss leaves of what no sync has covered: parts of the bytes, parts of the names.

See docs/internals/crash-explorer.md for which parts are tried, and which are not.
"""

import hashlib

SECTOR_BYTES = 512
PAGE_BYTES = 4096


class Change:
    """A change of one file: bytes at an offset, or (data is None) another length."""

    __slots__ = ("is_done", "is_withheld", "offset", "data", "length", "only_grows")

    def __init__(self, offset=0, data=None, length=0, only_grows=False):
        self.offset, self.data = offset, data
        self.length, self.only_grows = length, only_grows
        self.is_done = self.is_withheld = False

    def end(self):
        return self.length if self.data is None else self.offset + len(self.data)

    def apply(self, content):
        if self.data is not None:
            put(content, self.offset, self.data)
        elif len(content) < self.length:
            content.extend(bytes(self.length - len(content)))
        elif not self.only_grows:
            del content[self.length :]


def put(content, offset, data):
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Content:
    """Bytes with their checksum, which is made once."""

    __slots__ = ("bytes", "_digest")

    def __init__(self, data):
        self.bytes, self._digest = data, None

    @property
    def digest(self):
        if self._digest is None:
            self._digest = hashlib.blake2b(self.bytes, digest_size=16).digest()
        return self._digest


# What becomes of names.


def keep_no_names(namings, source):
    return []


def keep_all_names(namings, source):
    return namings


def keep_first_names(namings, source):
    """As a journal does that has all changes of names in one order."""
    return namings[: source.randint(0, len(namings))]


def keep_first_names_of_each_folder(namings, source):
    """Each folder by itself in order. One change that concerns two folders goes with the first."""
    ends, counts, kept = {}, {}, []
    for naming in namings:
        folder = naming.parts[-1][0]
        counts[folder] = counts.get(folder, 0) + 1
    for naming in namings:
        folder = naming.parts[-1][0]
        if folder not in ends:
            ends[folder] = source.randint(0, counts[folder])
        if ends[folder] > 0:
            ends[folder] -= 1
            kept.append(naming)
    return kept


def keep_some_names(namings, source):
    """Any of them, as POSIX allows."""
    share = source.choice([0.1, 0.5, 0.9])
    return [naming for naming in namings if source.random() < share]


KEEP_NAMES = {
    "none": keep_no_names,
    "all": keep_all_names,
    "first": keep_first_names,
    "folders": keep_first_names_of_each_folder,
    "some": keep_some_names,
}


# What becomes of the bytes of a file.


def keep_no_data(file, source):
    return file.durable


def keep_all_data(file, source):
    return file.whole() if file.pending else file.durable


def keep_lengths(file, source):
    """The length came to the device, and none of the bytes: they are zeros."""
    content = bytearray(file.durable.bytes)
    length = max([len(content), *(change.end() for change in file.pending)])
    content.extend(bytes(length - len(content)))
    return Content(bytes(content)) if file.pending else file.durable


def keep_first_data(file, source):
    """The first changes, and of the next one a first part, in sectors."""
    if not file.pending:
        return file.durable
    content = bytearray(file.durable.bytes)
    count = source.randint(0, len(file.pending))
    for change in file.pending[:count]:
        change.apply(content)
    if count < len(file.pending) and file.pending[count].data:
        torn = file.pending[count]
        end = source.randint(0, len(torn.data)) + torn.offset
        end -= end % SECTOR_BYTES
        if end > torn.offset:
            put(content, torn.offset, torn.data[: end - torn.offset])
    return Content(bytes(content))


def keep_last_data(file, source):
    """The last change alone: all before it were lost."""
    if not file.pending:
        return file.durable
    content = bytearray(file.durable.bytes)
    file.pending[-1].apply(content)
    return Content(bytes(content))


def keep_some_data(file, source):
    """Any sectors or pages of any changes; the length as these need it, or as all of them do."""
    if not file.pending:
        return file.durable
    content = bytearray(file.durable.bytes)
    unit = source.choice([SECTOR_BYTES, PAGE_BYTES])
    for change in file.pending:
        keep_some_of(change, content, unit, source)
    length = max(change.end() for change in file.pending)
    if source.random() < 0.5 and len(content) < length:
        content.extend(bytes(length - len(content)))
    return Content(bytes(content))


def keep_some_of(change, content, unit, source):
    share = source.choice([0, 0.1, 0.5, 0.9, 1])
    if change.data is None or share == 1:
        if source.random() < share:
            change.apply(content)
        return
    begin, end = change.offset, change.end()
    while begin < end:
        after = min(end, begin - begin % unit + unit)
        if source.random() < share:
            put(content, begin, change.data[begin - change.offset : after - change.offset])
        begin = after


KEEP_DATA = {
    "none": keep_no_data,
    "all": keep_all_data,
    "lengths": keep_lengths,
    "first": keep_first_data,
    "last": keep_last_data,
    "some": keep_some_data,
}

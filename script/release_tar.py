"""Tar archives whose bytes depend on nothing but their content and a time: order, owners and times
are fixed."""

import gzip
import io
import tarfile


def write_gzip(path, files, time_s):
    """Packs files, a path each by its place in the archive, as gzip. All belong to root."""
    path.write_bytes(gzip.compress(pack(files, time_s), mtime=0))


def pack(files, time_s, folders=(), owners=None):
    """The bytes of a tar archive of files and empty folders; `owners` has numbers by place."""
    owners = owners or {}
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for place in sorted([*folders, *files]):
            entry = tarfile.TarInfo(place)
            entry.mtime = time_s
            entry.uid = entry.gid = owners.get(place, 0)
            if place in files:
                content = files[place].read_bytes()
                entry.mode = files[place].stat().st_mode & 0o777
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755 if place not in owners else 0o700
                archive.addfile(entry)
    return output.getvalue()

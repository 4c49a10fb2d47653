"""The fields of `--output json` are those that docs/json-output.md lists under the command: each
that is printed is described, and each that is described is printed here, but for those of
UNSEEN."""

import contextlib
import json
import pathlib
import re
import threading

import blob_client
import session
from pelton.v1 import blob_pb2
from server import Server, open_channel, wait_until

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "json-output.md"
SECONDS = 120

# What no command of this session prints: it needs something broken, or two at a time.
UNSEEN = {
    "pelton blob list": {"sha256"},
    "pelton blob stat": {"sha256"},
    "pelton batch": {"expires_at_ms", "refusal"},
    "pelton watch": {"changes.value_left_out", "continued"},
    "pelton transact": {
        *("deleted", "expires_at_ms", "length", "message", "previous", "refusal", "status"),
    },
    "pelton log verify": {"databases_on_disk.error"},
    "pelton lab scenario": {"not_run.run", "not_run.why"},
    "pelton promote": {"promoted", "epoch", "sequence", "leader_sequence", "forced", "serves"},
    "pelton forget-replicas": {"forgotten", "left"},
    "pelton lab diagnose": {
        *("change.text", "change.predicted_gain", "change.measured_gain"),
        # Without --agent.
        *("agent.address", "agent.lost_after_s"),
    },
    "pelton lab tap": {"failed_connections.reason", "failed_connections.connections"},
    # Without --server-pid.
    "pelton lab sweep": {f"cells.server_us.{which}" for which in ("median", "least", "most")},
}

# Entries, and what another command has printed: their fields are described there.
OF_OTHERS = {"previous", "client_figures", "relay_figures"}

# `@` stands for `--output json`. Two at least of each that writes, so that both outcomes are seen.
COMMANDS = r"""
pelton put k v @
pelton put k w --ttl 1h --previous @
pelton put k x --if-absent @
pelton get k @
pelton get nothing @
pelton append k more @
pelton append k more @
pelton incr n @
pelton incr k @
pelton scan @
pelton watch --prefix w --limit 2 --previous @ & for i in 1 2 3; do sleep 0.5; pelton put w $i --ttl 1h > put; done; wait
pelton ls @
pelton count @
pelton delete k --previous @
pelton delete k @
pelton delete --prefix nothing @
printf '%s\n' '{"operation":"put","key":"b","value":"1","return_previous":true}' '{"operation":"get","key":"b"}' '{"operation":"append","key":"b","value":"2"}' '{"operation":"delete","key":"b"}' | pelton batch --mode independent @
head -c 3900000 /dev/zero | tr '\0' a | pelton put large --file -
head -c 200000 /dev/zero | tr '\0' a | sed 's/.*/{"operation":"append","key":"large","value":"&"}/' | pelton batch --mode independent @
echo '{"comparisons":[{"key":"t","exists":true}],"when_unmet":[{"operation":"put","key":"t","value":"1"},{"operation":"get","key":"t"}]}' | pelton transact @
echo '{"comparisons":[{"key":"t","exists":true}],"when_met":[{"operation":"put","key":"t","value":"2"}]}' | pelton transact @
pelton export all.jsonl @
pelton import all.jsonl @
echo content > file
pelton upload file --name blob --content-type text/plain @
pelton upload file --name other @
pelton download blob --to fetched @
pelton blob list @
pelton blob stat blob @
pelton blob stat nothing @
pelton blob uploads @
pelton blob uploads --discard-all @
pelton blob delete other @
pelton blob delete other @
pelton database create d --kind disk @
pelton database create d --kind disk @
pelton put k v --database d
pelton database create e @
pelton database convert e --kind disk @
pelton database list @
pelton token create ci --rights read --expires 1h @
pelton token create user --rights read --uid 7 @
pelton token rotate ci --keep 1h @
pelton token list @
pelton token revoke ci @
pelton role set r --rights read @
pelton role set r --rights write @
pelton role list @
pelton role drop r @
pelton backup b @
pelton restore ../backups/b --verify-only @
pelton restore ../backups/b --data restored @
pelton snapshot @
pelton status @
pelton echo hello @
pelton log inspect restored --records @
pelton log verify restored @
pelton database drop e @
pelton database drop e @
pelton self-check --data . @
pelton load --keys 10 --calls 10 --histogram hlog > loaded || true
pelton lab histogram hlog @
pelton lab tap --target $PELTON_ADDRESS @ -- pelton echo hello --address '{target}'
pelton lab sweep --over in-flight=1,2 --keys 100 --runs 1 --duration 50ms --warm-up 0s --save sweep.jsonl @
pelton lab compare sweep.jsonl sweep.jsonl @
pelton lab scenario in-flight --quick @
pelton top --every 100ms --count 2 @
pelton lab diagnose --target $PELTON_ADDRESS --max-rate 100000 --max-in-flight 4 @
pelton lab diagnose --target $PELTON_ADDRESS --client 'pelton load --address {target} --calls 200 --keys 10 --warm-up 0s --connections 1' @
"""


def described():
    """The fields of each command of the page, in their tables."""
    fields, command = {}, None
    for line in PAGE.read_text().splitlines():
        if heading := re.fullmatch(r"## (.*)", line):
            command = heading[1]
        elif cells := re.match(r"\| (`.*?) \|", line):
            fields.setdefault(command, set()).update(re.findall(r"`([^`]+)`", cells[1]))
    return {name: found for name, found in fields.items() if name.startswith("pelton ")}


def names(value, above=""):
    """The fields of an object, and those of objects within it, but for entries."""
    for name, inner in value.items():
        yield above + name
        if name in OF_OTHERS:
            continue
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, dict):
                yield from names(one, f"{above}{name}.")


@contextlib.contextmanager
def open_upload(address):
    """An upload that has begun, and does not end before the session does."""
    over = threading.Event()

    def parts():
        yield blob_client.begin("unfinished", upload_id=b"one")
        yield blob_client.chunk(b"content")
        over.wait(SECONDS)

    with open_channel(address) as channel:
        blob = blob_client.stub(channel)
        call = blob.Upload.future(parts(), timeout=SECONDS)
        request = blob_pb2.ListUploadsRequest()
        wait_until(lambda: blob.ListUploads(request, timeout=SECONDS).uploads)
        yield
        over.set()
        call.cancel()


def printed(binary, folder, commands):
    """The fields of what the commands printed, by command."""
    fields = {name: set() for name in commands}
    environment = session.plain_environment(binary)
    place = folder / "work"
    place.mkdir()
    arguments = ["--data", str(folder / "data"), "--backup-root", str(folder / "backups")]
    arguments += ["--threads", "2", "--memory-limit", "1GiB"]
    with Server(binary, *arguments) as server, open_upload(server.address):
        environment["PELTON_ADDRESS"] = server.address
        for line in COMMANDS.strip().splitlines():
            line = line.replace("@", "--output json")
            code, output, errors = session.typed(line, place, environment, SECONDS)
            assert code in (0, 1) or "large" in line, (line, code, errors)
            if "--output json" not in line:
                continue
            words = line[line.index("pelton ") :].replace("pelton ls", "pelton scan")
            command = max((name for name in commands if words.startswith(name)), key=len)
            for text in output.splitlines():
                fields[command].update(names(json.loads(text)))
    return fields


def test_fields_of_json_are_those_of_the_page(binary, tmp_path):
    page = described()
    fields = printed(binary, tmp_path, page)
    for command, found in fields.items():
        assert found - page[command] == set(), f"{command}: printed, and not in {PAGE.name}"
        missing = page[command] - found - UNSEEN.get(command, set())
        assert missing == set(), f"{command}: in {PAGE.name}, and not printed"


def test_every_command_with_json_is_on_the_page(binary):
    page = described()
    help_text = (pathlib.Path(__file__).parent / "help.txt").read_text()
    pattern = r"^\$ (pelton [a-z -]+?) --help\n(.*?)(?=^\$ |\Z)"
    sections = re.findall(pattern, help_text, re.MULTILINE | re.DOTALL)
    flag = re.compile(r"^\s+--output <FORMAT>", re.MULTILINE)
    takes_json = {name for name, text in sections if flag.search(text)}
    # `pelton ls` prints what `pelton scan` does; loads have a page of their own.
    takes_json -= {"pelton ls", "pelton load"}
    takes_json -= {f"pelton load {service}" for service in ("kvstore", "ping", "gupload", "tkrzw")}
    assert takes_json == set(page)

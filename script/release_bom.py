"""What the program is made of: the bill of materials, and the licences."""

import collections
import json
import pathlib
import re
import subprocess
import time
import uuid

# The crates in the program: what Cargo says of each, and the names of those that it uses itself.
Package = collections.namedtuple(
    "Package", "name version licence repository folder checksum uses own"
)
LICENCE_FILE = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense|copyright)")


# What a program or library has in it beside the crates, before the list of those.
LIBRARIES = {
    "pelton": """The program contains the GNU C Library, under the LGPL 2.1 or later
(https://www.gnu.org/software/libc), linked statically. It can be linked with another version of it,
by script/release.
""",
    "pelton-grpc": """The wheel takes the GNU C Library and Python from the machine on which it is
installed.
""",
}


def packages(root, name="pelton"):
    """The crates of which something is in a program or library on Linux: no tools of its build or
    tests. `root` has its Cargo.lock."""
    words = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]
    metadata = json.loads(subprocess.check_output(words, cwd=root))
    described = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    first = next(key for key, package in described.items() if package["name"] == name)
    reached, open_keys = {}, [first]
    while open_keys:
        key = open_keys.pop()
        if key not in reached:
            reached[key] = [
                used["pkg"]
                for used in nodes[key]["deps"]
                if any(kind["kind"] is None for kind in used["dep_kinds"])
                and not is_macro(described[used["pkg"]])
            ]
            open_keys += reached[key]
    sums = checksums(root)
    found = [
        package(described[key], [described[used] for used in uses], sums)
        for key, uses in reached.items()
    ]
    return sorted(found, key=lambda package: (package.name, package.version))


def is_macro(described):
    """Whether a crate runs in the compiler only."""
    return any("proc-macro" in target["kind"] for target in described["targets"])


def package(described, uses, sums):
    return Package(
        described["name"],
        described["version"],
        described["license"],
        described["repository"] or "",
        pathlib.Path(described["manifest_path"]).parent,
        sums.get((described["name"], described["version"])),
        sorted(reference(used["name"], used["version"]) for used in uses),
        described["source"] is None,
    )


def checksums(root):
    """The SHA-256 of each crate's package, by name and version, of Cargo.lock."""
    found = {}
    for entry in (root / "Cargo.lock").read_text().split("[[package]]"):
        fields = dict(re.findall(r'^(name|version|checksum) = "(.*)"$', entry, re.MULTILINE))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def reference(name, version):
    return f"pkg:cargo/{name}@{version}"


def expression(licence):
    """A licence as SPDX writes it; older crates have a stroke for OR."""
    return re.sub(r"\s*/\s*", " OR ", licence)


def cyclonedx(packages, version, time_s, name="pelton"):
    """The bill of materials as JSON of CycloneDX 1.5."""
    program = reference(name, version)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{program}#{time_s}')}",
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s)),
            "component": {
                "type": "application" if name == "pelton" else "library",
                "bom-ref": program,
                "name": name,
                "version": version,
                "purl": program,
            },
        },
        "components": [
            component(package)
            for package in packages
            if reference(package.name, package.version) != program
        ],
        "dependencies": [
            {"ref": reference(package.name, package.version), "dependsOn": package.uses}
            for package in packages
        ],
    }
    return json.dumps(bill, indent=1) + "\n"


def component(package):
    purl = reference(package.name, package.version)
    described = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }
    described["licenses"] = [{"expression": expression(package.licence)}]
    if package.checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": package.checksum}]
    return described


def licences(packages, root, name="pelton"):
    """The project's own licence, then those of the crates of others, each text once."""
    parts = ["Pelton is under the Apache License 2.0:\n", (root / "LICENSE").read_text()]
    parts += [
        LIBRARIES[name],
        "It contains Rust's standard library, under the Apache License 2.0 or the MIT licence (https://www.rust-lang.org).\n",
        "It contains the crates that follow.\n",
    ]
    texts = collections.OrderedDict()
    for package in packages:
        if package.own:
            continue
        found = [
            file
            for file in sorted(package.folder.iterdir())
            if file.is_file() and LICENCE_FILE.match(file.name)
        ]
        parts.append(
            f"- {package.name} {package.version}: {expression(package.licence)} "
            f"{package.repository}".rstrip()
        )
        for file in found:
            text = file.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(f"{package.name} {package.version}")
    for text, owners in texts.items():
        parts.append(f"\n{'=' * 80}\n{', '.join(owners)}:\n\n{text}")
    return "\n".join(parts) + "\n"

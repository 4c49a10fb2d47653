"""An authority of its own and certificates that it signs, made with the openssl program."""

import pathlib
import subprocess

CONFIG = """
[ca]
default_ca = own
[own]
dir = {folder}
database = $dir/index
serial = $dir/serial
new_certs_dir = $dir
certificate = $dir/ca.pem
private_key = $dir/ca.key
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
"""


class Authority:
    """Lives in a folder, which is given."""

    def __init__(self, folder, name="authority of a test"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = self.folder / "openssl.cnf"
        self.config.write_text(CONFIG.format(folder=self.folder))
        (self.folder / "index").touch()
        (self.folder / "serial").write_text("1000\n")
        self.ca = self.folder / "ca.pem"
        self._key(self.folder / "ca.key")
        self._openssl(
            "req", "-x509", "-new", "-key", self.folder / "ca.key", "-out", self.ca,
            "-days", "3650", "-subj", f"/CN={name}", "-config", self.config,
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def sign(
        self,
        name,
        end="20900101000000Z",
        start="20200101000000Z",
        names="DNS:localhost,IP:127.0.0.1",
    ):
        """A certificate for these names, or for none, and its key: two paths."""
        key, request, certificate = (
            self.folder / f"{name}.{ending}" for ending in ("key", "csr", "pem")
        )
        self._key(key)
        # Without any extension it would be of X.509 version 1.
        extension = f"subjectAltName={names}" if names else "basicConstraints=CA:FALSE"
        self._openssl(
            "req", "-new", "-key", key, "-out", request, "-subj", f"/CN={name}",
            "-config", self.config, "-addext", extension,
        )  # fmt: skip
        self._openssl(
            "ca", "-batch", "-notext", "-config", self.config, "-in", request, "-out", certificate,
            "-startdate", start, "-enddate", end,
        )  # fmt: skip
        return certificate, key

    def self_signed(self, name, *extensions):
        """A certificate that nobody but its own key has signed, and that key."""
        key, certificate = (self.folder / f"{name}.{ending}" for ending in ("key", "pem"))
        self._key(key)
        words = [word for extension in extensions for word in ("-addext", extension)]
        self._openssl(
            "req", "-x509", "-new", "-key", key, "-out", certificate, "-days", "30",
            "-subj", f"/CN={name}", "-config", self.config, *words,
        )  # fmt: skip
        return certificate, key

    @staticmethod
    def fingerprint(certificate):
        """As the openssl program shows it."""
        words = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", certificate]
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return shown.strip().split("=")[1]

    def _key(self, path):
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)

    @staticmethod
    def _openssl(*words):
        done = subprocess.run(
            ["openssl", *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr

"""Certificates for tests, made by deploy/tls."""

import pathlib
import subprocess

import grpc

from stubs import ROOT


class Certs:
    """A folder of deploy/tls: an authority, a server's certificate for localhost, a client's."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.make("--server", "localhost,127.0.0.1", "--client", "admin")

    def make(self, *arguments):
        done = subprocess.run(
            [ROOT / "deploy" / "tls", "--dir", self.folder, *map(str, arguments)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def path(self, name):
        return self.folder / f"{name.replace('/', '%2F')}.pem"

    def key(self, name):
        return self.folder / f"{name.replace('/', '%2F')}-key.pem"

    @property
    def ca(self):
        return self.folder / "ca.pem"

    def server_flags(self):
        return {"tls-cert": self.path("server"), "tls-key": self.key("server"), "client-ca": self.ca}

    def flags(self, name, ca=None):
        """For reins-worker and reins, with the certificate of that name, or none."""
        flags = {"tls-ca": ca or self.ca}
        if name:
            flags.update({"tls-cert": self.path(name), "tls-key": self.key(name)})
        return flags

    def worker(self, name):
        """The flags of a worker, its certificate made if there is none."""
        if not self.path(f"worker-{name}").exists():
            self.make("--worker", name)
        return self.flags(f"worker-{name}")

    def credentials(self, name="client-admin"):
        """Of grpc, with the certificate of that name, or none."""
        own = (self.key(name).read_bytes(), self.path(name).read_bytes()) if name else (None, None)
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), *own)

"""A certificate authority of a cluster's own, made with the openssl program. Keys never leave the given directory."""

import base64
import json
import os

import processes

DAYS = "365"
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """Files: ca.crt, ca.key, NAME.crt and NAME.key in `directory`, PEM, readable by the owner alone."""

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if not os.path.exists(self.path("ca.crt")):
            self._openssl("req", "-x509", *KEY, "-days", DAYS, "-subj", "/CN=muster-test-ca",
                          "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                          "-keyout", self.path("ca.key"), "-out", self.path("ca.crt"))

    def path(self, name):
        return os.path.join(self.directory, name)

    @staticmethod
    def _openssl(*arguments):
        processes.run(["openssl", *arguments], seconds=60)

    def issue(self, name, common_name, organizations=(), names=(), addresses=()):
        """A certificate for clients and, with names or addresses, for servers; returns the paths of both files."""
        subject = "".join(f"/O={part.replace('/', '')}" for part in organizations) + f"/CN={common_name}"
        alternatives = [f"DNS:{part}" for part in names] + [f"IP:{part}" for part in addresses]
        usage = "clientAuth" + (",serverAuth" if alternatives else "")
        extra = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"extendedKeyUsage={usage}"]
        if alternatives:
            extra += ["-addext", f"subjectAltName={','.join(alternatives)}"]
        certificate, key = self.path(f"{name}.crt"), self.path(f"{name}.key")
        self._openssl("req", "-x509", *KEY, "-days", DAYS, "-subj", subject, *extra, "-CA", self.path("ca.crt"),
                      "-CAkey", self.path("ca.key"), "-keyout", key, "-out", certificate)
        return certificate, key

    def expired(self, name):
        """A certificate that ended yesterday, of its own making; returns the paths of both files."""
        certificate, key, request = self.path(f"{name}.crt"), self.path(f"{name}.key"), self.path(f"{name}.csr")
        self._openssl("req", "-new", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-signkey", key, "-days", "-1", "-out", certificate)
        return certificate, key

    def key_pair(self, name):
        """A bare key pair, for signing service accounts' tokens; returns private and public file."""
        private, public = self.path(f"{name}.key"), self.path(f"{name}.pub")
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private)
        os.chmod(private, 0o600)
        self._openssl("ec", "-in", private, "-pubout", "-out", public)
        return private, public


def write_kubeconfig(path, url, ca_file, user, certificate=None, key=None, token=None, namespace="default"):
    """A kubeconfig (JSON is YAML) with everything inlined, so that it can be copied alone; readable by the owner."""
    def inline(file_name):
        with open(file_name, "rb") as file:
            return base64.b64encode(file.read()).decode()

    credentials = {"token": token} if token else {"client-certificate-data": inline(certificate),
                                                  "client-key-data": inline(key)}
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "muster",
        "clusters": [{"name": "muster", "cluster": {"server": url, "certificate-authority-data": inline(ca_file)}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": user, "namespace": namespace}}],
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    return path

"""A certificate authority of the lab, and a certificate of tpu.googleapis.com that the hosts accept."""

import subprocess
from pathlib import Path

HOST = "tpu.googleapis.com"
SYSTEM = Path("/etc/ssl/certs/ca-certificates.crt")


def create(folder: Path) -> None:
    """`folder`/tls holds the server's key and certificate; `folder`/certs takes the place of /etc/ssl/certs in the hosts."""
    tls, certs = folder / "tls", folder / "certs"
    tls.mkdir()
    certs.mkdir()
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-x509", *key, "-keyout", f"{tls}/ca.key", "-out", f"{tls}/ca.pem", "-days", "2", "-subj", "/CN=lab")
    openssl("req", *authority, "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign")
    issued = (
        "-x509",
        *key,
        "-keyout",
        f"{tls}/server.key",
        "-out",
        f"{tls}/server.pem",
        "-days",
        "2",
        "-subj",
        f"/CN={HOST}",
    )
    signed = ("-CA", f"{tls}/ca.pem", "-CAkey", f"{tls}/ca.key", "-addext", f"subjectAltName=DNS:{HOST}")
    openssl("req", *issued, *signed, "-addext", "basicConstraints=critical,CA:FALSE")
    own = (tls / "ca.pem").read_text()
    (certs / "ca-certificates.crt").write_text((SYSTEM.read_text() if SYSTEM.exists() else "") + own)
    name = openssl("x509", "-in", f"{tls}/ca.pem", "-noout", "-hash").strip()
    (certs / f"{name}.0").write_text(own)


def openssl(*argv: str) -> str:
    return subprocess.run(["openssl", *argv], check=True, capture_output=True, text=True).stdout

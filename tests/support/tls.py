"""The session's Valkey behind TLS, with a certificate authority made for the session."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .proxy import running_proxy


@pytest.fixture(scope="session")
def tls_url(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address, with the authority that vouches for it. (The embedded server is built without TLS.)"""
    if shutil.which("openssl") is None:
        pytest.skip("no certificate can be made: openssl is not on PATH")
    folder = tmp_path_factory.mktemp("tls")
    authority = _certify(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    port = urlsplit(valkey_url).port
    assert port is not None
    with running_proxy(port, tls=context) as proxy:
        yield f"rediss://127.0.0.1:{proxy.port}/0?ssl_ca_certs={authority}"


def with_another_authority(url: str) -> str:
    """The same address, with an authority that does not vouch for it."""
    address, _, authority = url.partition("?ssl_ca_certs=")
    folder = Path(authority).parent / "other"
    folder.mkdir(exist_ok=True)
    return f"{address}?ssl_ca_certs={_certify(folder)}"


def _certify(folder: Path) -> Path:
    """An authority, and a certificate by it for 127.0.0.1. Returns the authority's file."""
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    key = "-newkey rsa:2048 -nodes -days 2"
    _openssl(folder, f"req -x509 {key} -subj /CN=authority -keyout ca.key -out ca.pem")
    _openssl(folder, f"req {key} -subj /CN=127.0.0.1 -keyout server.key -out server.csr")
    by_authority = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names"
    _openssl(folder, f"x509 -req -in server.csr {by_authority} -out server.pem")
    return folder / "ca.pem"


def _openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)

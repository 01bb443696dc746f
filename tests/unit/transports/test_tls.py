"""TLS contexts: the files of a server, the one authority of a client, and failures of TLS."""

from __future__ import annotations

import errno
import os
import ssl
from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.transports.tls import TlsFiles, rejected, trusting
from tests.certificates import make_certificate


def test_files_that_are_not_a_certificate_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("no certificate")
    with pytest.raises(UsageError, match=r"cert\.pem"):
        TlsFiles(certificate=path, key=path).context()


def test_a_key_that_is_encrypted_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoTerminal:
        def load_cert_chain(self, *_: object) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(ssl, "create_default_context", lambda _: NoTerminal())
    certificate, key = make_certificate(tmp_path)
    with pytest.raises(UsageError, match="Invalid argument"):
        TlsFiles(certificate=certificate, key=key).context()
    key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    with pytest.raises(UsageError, match=f"the key is encrypted; `openssl pkey -in {key}`"):
        TlsFiles(certificate=certificate, key=key).context()


def test_a_client_trusts_its_authority_and_no_other(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    TlsFiles(certificate=certificate, key=key).context()
    context = trusting(certificate.read_text())
    (known,) = context.get_ca_certs()
    assert (("commonName", "localhost"),) in known["subject"]
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def test_an_authority_that_is_not_a_certificate_is_refused() -> None:
    with pytest.raises(UsageError, match="not a PEM certificate"):
        trusting("no certificate")


def test_a_rejected_certificate_is_found_in_the_error_of_a_library() -> None:
    wrapped = OSError("cannot connect")
    wrapped.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    assert rejected(wrapped) and rejected(ssl.SSLError("wrong version number"))
    wrapped.__cause__ = ssl.SSLEOFError("the other side hung up")
    assert not rejected(wrapped) and not rejected(OSError("refused"))

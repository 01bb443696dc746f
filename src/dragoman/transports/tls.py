"""Create the TLS contexts of a server (from its certificate files) and of a client that trusts one
authority, and recognise connections that failed because of TLS.

`http_server` and the console use the server's context, `fleet.connection` gives the client's to its
library.
"""

from __future__ import annotations

import errno
import ssl
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The certificate chain and its private key, as PEM files."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a server. Raises `UsageError` if the files cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if getattr(error, "errno", None) == errno.EINVAL and self._is_encrypted:
                # There is no terminal to ask for the passphrase, or it was wrong.
                why = f"the key is encrypted; `openssl pkey -in {self.key}` decrypts it"
            raise UsageError(
                f"cannot use the TLS certificate {self.certificate} with the key {self.key} (both "
                f"must be PEM files): {why}"
            ) from error
        return context

    @property
    def _is_encrypted(self) -> bool:
        try:
            return b"ENCRYPTED" in self.key.read_bytes()
        except OSError:
            return False


def trusting(authority: str) -> ssl.SSLContext:
    """Return the TLS context of a client that accepts only servers whose certificate was issued by
    `authority`, which is itself a certificate in PEM format. Raises `UsageError` if it is not."""
    try:
        return ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(f"the authority is not a PEM certificate: {error}") from error


def rejected(error: BaseException | None) -> bool:
    """Return whether a connection failed because TLS rejected the other side: its certificate is
    not accepted, or it does not speak TLS. Also looks at the causes of `error`, because libraries
    wrap the error of TLS in their own."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            # The others mean that the connection was lost.
            lost = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
            return not isinstance(error, lost)
        error = error.__cause__
    return False

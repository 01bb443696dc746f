"""Record which project files the user trusts, by real path and SHA-256 digest.

A checkout can be hostile, so dragoman ignores the commands, endpoints and variables in its files
until the user trusts them. The record includes the Python adapters that the file names. Any changed
byte or link target ends the trust. `config.load` decides what needs trust.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from dragoman.config.safe_files import locked, read_file, write_file
from dragoman.decoders import decode_typed
from dragoman.errors import ConfigInvalid
from dragoman.paths import Paths
from dragoman.wire.messages import UNDECODABLE

TRUST_FORMAT: Final = 1


class TrustedFile(Struct, frozen=True, kw_only=True):
    """The digest of a trusted file, and of the adapters that it named when it was trusted."""

    digest: str
    adapters: dict[str, str] = field(default_factory=dict)
    trusted_at: str = ""


class TrustRecord(Struct, frozen=True, kw_only=True):
    """The file in the data directory that records the trusted files."""

    format: int = TRUST_FORMAT
    files: dict[str, TrustedFile] = field(default_factory=dict)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def real(path: Path) -> str:
    return os.path.realpath(path)


class Trust:
    """The trusted files on this machine. The caller passes the bytes that it is going to use,
    so that nothing can change between check and use."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.trust_file

    def record(self) -> TrustRecord:
        """Return the record of trusted files; an empty one if none was ever written.

        Raises `ConfigInvalid` if the record is damaged or has an unknown format. `trusts` and
        `trusts_adapter` then return False.
        """
        data = read_file(self._file)
        if data is None:
            return TrustRecord()
        try:
            record = decode_typed(data, TrustRecord)
        except UNDECODABLE as error:
            raise ConfigInvalid(
                str(self._file), f"the record of trusted projects is damaged: {error}; remove it"
            ) from error
        if record.format != TRUST_FORMAT:
            raise ConfigInvalid(
                str(self._file),
                f"the record of trusted projects has the format {record.format}, and this version "
                f"reads format {TRUST_FORMAT}; use the version that wrote it, or remove the file",
            )
        return record

    def _entry(self, file: Path) -> TrustedFile | None:
        try:
            return self.record().files.get(real(file))
        except ConfigInvalid:
            return None

    def trusts(self, file: Path, data: bytes) -> bool:
        """Return whether exactly these bytes of this file are trusted."""
        entry = self._entry(file)
        return entry is not None and entry.digest == digest(data)

    def trusts_adapter(self, file: Path, adapter: Path, data: bytes) -> bool:
        """Return whether these bytes of an adapter were recorded when the project's file was
        trusted."""
        entry = self._entry(file)
        return entry is not None and entry.adapters.get(real(adapter)) == digest(data)

    def trust(self, file: Path, data: bytes, adapters: Mapping[Path, bytes] | None = None) -> None:
        """Record that the user trusts these bytes of a file and of the adapters that it names. The
        caller must have shown them to the user."""
        entry = TrustedFile(
            digest=digest(data),
            adapters={real(path): digest(code) for path, code in (adapters or {}).items()},
            trusted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._change(file, entry)

    def withdraw(self, file: Path) -> bool:
        """Revoke the trust in a file. Returns False if it was not trusted."""
        return self._change(file, None)

    def _change(self, file: Path, entry: TrustedFile | None) -> bool:
        with locked(self._file):
            files = dict(self.record().files)
            known = files.pop(real(file), None) is not None
            if entry is not None:
                files[real(file)] = entry
            if known or entry is not None:
                data = msgspec.json.format(msgspec.json.encode(TrustRecord(files=files)), indent=2)
                write_file(self._file, data, mode=0o600)
        return known

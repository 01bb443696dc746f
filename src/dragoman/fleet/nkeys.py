"""NKeys: the Ed25519 keys of NATS in their text form, and signatures with them.

The text is the base32 of a prefix for the kind of key, the 32 bytes of the key, and a CRC-16.
`tokens` signs JWTs with the keys, `connection` signs the server's nonce.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dragoman.errors import UsageError

KeyKind: TypeAlias = Literal["operator", "account", "user"]

_PREFIX: Final[dict[KeyKind, int]] = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
_SEED: Final = 18 << 3
_KEY_SIZE: Final = 32


class KeyPair:
    """A private key of one kind, with its public key."""

    def __init__(self, kind: KeyKind, raw: bytes) -> None:
        self.kind = kind
        self._raw = raw
        self._key = Ed25519PrivateKey.from_private_bytes(raw)
        self.public: Final = _text(
            bytes([_PREFIX[kind]]) + self._key.public_key().public_bytes_raw()
        )
        """The public key, which also identifies the operator, account or user."""

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"

    @property
    def seed(self) -> str:
        """The private key as text."""
        prefix = _PREFIX[self.kind]
        head = bytes([_SEED | prefix >> 5, (prefix & 31) << 3])
        return _text(head + self._raw)

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


def new_key(kind: KeyKind) -> KeyPair:
    return KeyPair(kind, Ed25519PrivateKey.generate().private_bytes_raw())


def read_seed(seed: str) -> KeyPair:
    """Return the key pair of a seed. Raises `UsageError` if the seed is invalid."""
    data = _bytes(seed)
    if len(data) != _KEY_SIZE + 2 or data[0] & 0xF8 != _SEED:
        raise UsageError("the private key is not a valid NATS seed")
    prefix = (data[0] & 7) << 5 | data[1] >> 3
    for kind, known in _PREFIX.items():
        if known == prefix:
            return KeyPair(kind, data[2:])
    raise UsageError("the private key is a NATS seed for an unsupported kind of key")


def is_public_key(text: str, kind: KeyKind) -> bool:
    """Return whether `text` is a public key of this kind."""
    try:
        data = _bytes(text)
    except UsageError:
        return False
    return len(data) == _KEY_SIZE + 1 and data[0] == _PREFIX[kind]


def _text(data: bytes) -> str:
    checked = data + _crc16(data).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError as error:
        raise UsageError("not a NATS key or seed: invalid base32") from error
    if len(data) < 3 or _crc16(data[:-2]).to_bytes(2, "little") != data[-2:]:
        raise UsageError("not a NATS key or seed: too short, or wrong checksum")
    return data[:-2]


def _crc16(data: bytes) -> int:
    return binascii.crc_hqx(data, 0)

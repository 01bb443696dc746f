"""TLS certificates of a fleet: its own certificate authority, and a certificate for the server.

Members get the authority's certificate with their credentials, so no public authority is needed.
`server` configures `nats-server` with them, `connection` verifies them.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

YEARS: Final = 10
"""Years for which both certificates are valid. They can be long-lived: `fleet revoke` removes
members, and the server's key never leaves the servers."""

_BEFORE: Final = datetime.timedelta(days=1)
"""How long before their creation the certificates become valid: a member's clock may be behind."""


class TlsMaterial(Struct, frozen=True, kw_only=True):
    """The authority's certificate, and the server's certificate and private key, as PEM. The
    authority's key is discarded, so the authority cannot sign anything else."""

    authority: str
    certificate: str
    key: str


def new_certificates(names: Iterable[str], *, now: float) -> TlsMaterial:
    """Create an authority, and a server certificate that it signs, for these host names and IP
    addresses."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _named("dragoman fleet authority")
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_named("dragoman fleet server"), authority_name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return TlsMaterial(
        authority=authority.public_bytes(pem).decode(),
        certificate=certificate.public_bytes(pem).decode(),
        key=key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: float
) -> x509.CertificateBuilder:
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _BEFORE)
        .not_valid_after(at + datetime.timedelta(days=365 * YEARS))
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)

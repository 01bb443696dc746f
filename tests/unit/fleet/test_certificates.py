"""TLS certificates: the names they are valid for, and who signed them."""

from __future__ import annotations

import ssl
import time

from cryptography import x509

from dragoman.fleet.certificates import new_certificates


def test_the_certificate_names_hosts_and_addresses() -> None:
    made = new_certificates(["fleet.example", "127.0.0.1"], now=time.time())
    certificate = x509.load_pem_x509_certificate(made.certificate.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fleet.example"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_the_server_certificate_is_signed_by_the_authority_and_is_not_one() -> None:
    made = new_certificates(["localhost"], now=time.time())
    ssl.create_default_context(cadata=made.authority)
    server = x509.load_pem_x509_certificate(made.certificate.encode())
    authority = x509.load_pem_x509_certificate(made.authority.encode())
    server.verify_directly_issued_by(authority)
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca

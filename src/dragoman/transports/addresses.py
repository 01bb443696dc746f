"""Internet addresses as text: parse and write `ADDRESS:PORT`, recognise the hosts that are this
machine, and show URLs without secrets.

Resolves no names: what a name means is decided when a socket is opened.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from dragoman.errors import UsageError

LOCALHOST: Final = "localhost"
MAX_PORT: Final = 65535


def parse_address(
    text: str, *, option: str, example: str, default_host: str = ""
) -> tuple[str, int]:
    """Return the host and the port of an option's value. An IPv6 address may be in brackets.

    The host may be omitted if there is a default. Raises `UsageError`, with the name of the option
    and the example, if the text has another form.
    """
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or default_host
    # A text that is much too long is not converted, which Python may refuse.
    is_number = port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT))
    if not host or not is_number or int(port) > MAX_PORT:
        form = "[HOST:]PORT" if default_host else "ADDRESS:PORT"
        raise UsageError(f"{option} takes {form}, such as {example}, not {text!r}")
    return host, int(port)


def bracketed(host: str) -> str:
    """Return a host as it is written before a port: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on this address.

    The name `localhost` counts. Names below it do not: a resolver may know other addresses for
    them.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == LOCALHOST


def is_this_machine(host: str) -> bool:
    """Return whether a host name means this machine: a loopback address, `localhost`, or a name
    below it (RFC 6761). Callers use no proxy for such a host."""
    return is_loopback(host) or host.casefold().endswith(f".{LOCALHOST}")


def without_secrets(url: str) -> str:
    """Return the URL as a message may show it: without user, password, query and fragment, which
    may hold secrets. Raises `ValueError` if it cannot be parsed."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}"

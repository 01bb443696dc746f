"""The text of a bug report: everything that helps, nothing that is secret.

Owns what stands in it. The whole text goes through `redaction` at the end, so that nothing can be
forgotten on the way.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from dragoman.hub.doctor import Finding
from dragoman.hub.overview import credentials_set, overview
from dragoman.hub.place import Place
from dragoman.hub.redaction import Redaction, shown_variables


def compose(place: Place, findings: Iterable[Finding], *, versions: str) -> str:
    """The report, ready to be shown to strangers. `versions` says what is installed."""
    names = [name for peer in place.catalogue for name in peer.credentials.env]
    redact = Redaction(place.environ, secret_names=tuple(names))
    return redact("\n".join(_lines(place, findings, versions)) + "\n")


def _lines(place: Place, findings: Iterable[Finding], versions: str) -> Iterator[str]:
    yield from versions.splitlines()
    yield f"{platform.system()} {platform.release()} {platform.machine()}"
    yield ""
    yield "Findings"
    for finding in findings:
        yield f"  {finding.state.value:<4}  {finding.check:<11}  {finding.text}"
    yield ""
    yield "Peers"
    for row in overview(place):
        if not (row.installed or row.enabled):
            continue
        login = ", ".join(credentials_set(row.descriptor, place)) or "none"
        yield (
            f"  {row.descriptor.name} {row.version or 'unknown'}: "
            f"{'enabled' if row.enabled else 'not enabled'}, card {row.card_state}, "
            f"credential variables set: {login}"
        )
    yield ""
    yield "Settings that are not defaults"
    for key, value, origin in place.config.values():
        if origin != "default":
            yield f"  {key} = {value!r}  ({origin})"
    yield ""
    yield "Variables"
    for name, value in shown_variables(place.environ).items():
        yield f"  {name}={value}"

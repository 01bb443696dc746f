"""Compose the text of a bug report, without secrets.

Environment variables are shown by an allow-list. The whole text is redacted by `redaction` at the
end.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from dragoman.config.secrets import report_redactor
from dragoman.delegation.peer_status import credentials_set, overview
from dragoman.paths import VARIABLES

if TYPE_CHECKING:
    from dragoman.runs.context import RunContext
    from dragoman.setup.doctor import Diagnosis

SHOWN: Final = (
    *("PATH", "SHELL", "TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CI", "NO_COLOR"),
    *("FORCE_COLOR", "VIRTUAL_ENV", "PYTHONPATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", *VARIABLES.values()),
)
"""Variables whose values are useful and not secret."""


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be shown, with their values."""
    return {name: environ[name] for name in SHOWN if name in environ}


def compose(place: RunContext, findings: Iterable[Diagnosis], *, versions: str) -> str:
    """The redacted report. `versions` lists what is installed."""
    names = [name for peer in place.catalogue for name in peer.credentials.env]
    redact = report_redactor(place.environ, names=names)
    return redact("\n".join(_lines(place, findings, versions)) + "\n")


def _lines(place: RunContext, findings: Iterable[Diagnosis], versions: str) -> Iterator[str]:
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

"""What may be shown to strangers: text without secrets and without the user's name.

Owns the rules for bug reports. Variables are shown by an allow-list, never by a list of what to
hide; the home folder becomes ``~``; what looks like a key is cut out wherever it stands, and so is
the value of every variable that has the name of a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from dragoman.hub.config.checking import SECRET_VALUE, SECRET_VARIABLE
from dragoman.hub.config.paths import VARIABLES

SHOWN: Final = (
    *("PATH", "SHELL", "TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CI", "NO_COLOR"),
    *("FORCE_COLOR", "VIRTUAL_ENV", "PYTHONPATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", *VARIABLES.values()),
)
"""Variables whose values help and tell nothing that is not meant for others."""

REDACTED: Final = "[redacted]"

SHORTEST: Final = 6
"""Values of secrets shorter than this are not looked for: they are parts of ordinary words."""


class Redaction:
    """Takes out of a text what is nobody's business."""

    def __init__(self, environ: Mapping[str, str], *, secret_names: tuple[str, ...] = ()) -> None:
        named = {
            value
            for name, value in environ.items()
            if (name in secret_names or SECRET_VARIABLE.search(name)) and len(value) >= SHORTEST
        }
        # A secret that is part of another one must not leave the rest of it behind.
        self._values = sorted(named, key=len, reverse=True)
        self._homes = _homes(environ)
        self._user = environ.get("USER") or environ.get("USERNAME") or ""

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, REDACTED)
        # Addresses with a name and a password before the host, which stays.
        text = re.sub(r"(?<=://)[^/\s@]+@", f"{REDACTED}@", text)
        text = SECRET_VALUE.sub(REDACTED, text)
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?=[/\\:;,'\"\s)]|$)", "~", text)
        if len(self._user) > 2 and self._user != "root":
            # Folders of the same user elsewhere, such as /var/folders or a mounted home.
            text = re.sub(rf"(?<=[/\\]){re.escape(self._user)}(?=[/\\]|$)", "USER", text)
        return text


def _homes(environ: Mapping[str, str]) -> list[str]:
    named = environ.get("HOME") or environ.get("USERPROFILE") or ""
    homes = {named.rstrip("/\\"), os.path.realpath(named)} if named else set()
    return sorted((home for home in homes if len(home) > 1), key=len, reverse=True)


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be shown, with their values."""
    return {name: environ[name] for name in SHOWN if name in environ}

"""Text that may be shown to strangers: without secrets and without the user's name.

Besides secrets, reports and logs lose this: the home directory becomes ``~``, and the user's name
is removed from other paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dragoman.redaction.redactor import Redactor


class ReportRedactor:
    """Removes secrets, home directories and the user's name from a text."""

    def __init__(
        self, values: Iterable[str] = (), *, homes: Iterable[str] = (), user: str = ""
    ) -> None:
        self._redact = Redactor(values)
        kept = {home.rstrip("/\\") for home in homes}
        self._homes = sorted((home for home in kept if len(home) > 1), key=len, reverse=True)
        self._user = user

    def __call__(self, text: str) -> str:
        text = self._redact.text(text)
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?=[/\\:;,'\"\s)]|$)", "~", text)
        if len(self._user) > 2 and self._user != "root":
            # Directories of the same user elsewhere, such as /var/folders or a mounted home.
            text = re.sub(rf"(?<=[/\\]){re.escape(self._user)}(?=[/\\]|$)", "USER", text)
        return text

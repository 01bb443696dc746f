"""The findings of a run of checks: as values, as a table and as JSON.

Defines the verdicts and the report formats. `manifest` has the requirements.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dragoman.decoders import decode_typed

EVIDENCE_SIZE = 300
"""Maximum length of an offending message in a report, in characters: enough to recognise it."""


class Verdict(enum.Enum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    """A requirement of the protocol is violated."""
    WARNED = "warned"
    """A recommendation of the protocol, or something that peers rely on, is violated."""
    SKIPPED = "skipped"
    """The check does not apply or could not be tried; `Finding.reason` says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    ids: tuple[str, ...]
    """The ids of the requirements that the check covers."""
    level: str
    """The strictest level among those requirements."""
    verdict: Verdict
    says: str
    """What the check expects, in a sentence."""
    reason: str = ""
    """What was wrong, or why the check was skipped."""
    evidence: str = ""
    """The offending message, shortened."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one run about one program."""

    side: str
    """``agent`` or ``client``: what was checked."""
    subject: str
    """The command line, or another name for the program."""
    findings: tuple[Finding, ...] = ()
    peer: dict[str, Any] = field(default_factory=dict)
    """What the program reported about itself in the handshake."""

    def counts(self) -> dict[str, int]:
        """Return the number of checks by verdict; every verdict is present."""
        counted = Counter(finding.verdict for finding in self.findings)
        return {verdict.value: counted[verdict] for verdict in Verdict}

    @property
    def conforms(self) -> bool:
        """Whether no check failed and at least one passed."""
        counts = self.counts()
        return counts["failed"] == 0 and counts["passed"] > 0

    def of(self, verdict: Verdict) -> list[Finding]:
        """Return the findings with one verdict."""
        return [finding for finding in self.findings if finding.verdict is verdict]

    def finding(self, check: str) -> Finding:
        """Return the finding of one check. Raises KeyError if it was not run."""
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(check)

    def summary(self) -> str:
        """Return the summary line."""
        counts = ", ".join(f"{number} {verdict}" for verdict, number in self.counts().items())
        return f"{counts}: {'conforms' if self.conforms else 'does not conform'}"

    def to_json(self) -> str:
        """Encode the report as a JSON object, for programs; `from_json` decodes it."""
        value = {
            "side": self.side,
            "subject": self.subject,
            "peer": self.peer,
            "conforms": self.conforms,
            "counts": self.counts(),
            "findings": self.findings,
        }
        return msgspec.json.format(msgspec.json.encode(value)).decode()

    def to_text(self) -> str:
        """Format the report as a text table. The last line is the summary."""
        lines = [f"{self.side}: {self.subject}"]
        name = self.peer.get("name")
        if name:
            lines.append(f"calls itself {name} {self.peer.get('version', '')}".rstrip())
        lines.append("")
        lines.extend(_table(self.findings))
        lines += ["", self.summary()]
        return "\n".join(lines) + "\n"


def from_json(text: str | bytes) -> Report:
    """Decode a report that `Report.to_json` encoded."""
    return decode_typed(text, Report)


def shortened(value: bytes | str | object) -> str:
    """Return a value (a message, a line or a text) as one line of limited length, for a report."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    elif isinstance(value, str):
        text = value
    else:
        text = msgspec.json.encode(value).decode()
    text = "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)
    if len(text) <= EVIDENCE_SIZE:
        return text
    return f"{text[:EVIDENCE_SIZE]}… ({len(text)} characters)"


def _table(findings: Sequence[Finding]) -> list[str]:
    width = max((len(finding.check) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        ids = " ".join(finding.ids)
        lines.append(f"{finding.verdict.value:8}{finding.check:{width}}  {ids}")
        if finding.reason:
            lines.append(f"{'':8}{finding.reason}")
        if finding.evidence:
            lines.append(f"{'':8}> {finding.evidence}")
    return lines

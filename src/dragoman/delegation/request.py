"""`DelegationRequest`: role, prompt, workspace and options of a delegation. Also parses agent
files.

`routing` chooses the peer, and `result` holds the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from dragoman.catalogue.descriptor import Tier
from dragoman.catalogue.session_settings import WantedSettings
from dragoman.config.schema import Fallback, Permissions
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.catalogue import Catalogue
    from dragoman.events.parts import Block, Capabilities
    from dragoman.runs.run_values import Deadline

Attach: TypeAlias = "Callable[[Path, Capabilities], Sequence[Block]]"
"""Callback that returns the attachments of the prompt, given the workspace and the capabilities of
the peer."""


TIERS: Final[tuple[str, ...]] = get_args(Tier)


def nothing(workspace: Path, can: Capabilities) -> Sequence[Block]:
    """The default `attach`: return no attachments."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationRequest:
    """A piece of work to delegate."""

    role: str
    prompt: str
    workspace: Path
    peer: str | None = None
    """Use only this peer."""
    tier: str | None = None
    model: str | None = None
    files: int = 0
    """Number of files that the prompt names, used to estimate the size of the work."""
    attach: Attach = nothing
    permissions: Permissions | None = None
    """Permission preset that overrides the settings."""
    allow_unenforced: bool = False
    """Whether a peer may be used although the policy would not restrict it."""
    session: WantedSettings = WantedSettings()
    """Requested session options. Peers that do not support them are skipped."""
    check: str | None = None
    """A command whose exit code says whether the work is good; None uses the settings."""
    isolate: bool = False
    """Whether to work in a git worktree and return a patch."""
    apply: bool = False
    """Whether to apply the patch if it still applies cleanly."""
    fallback: Fallback | None = None
    cold: bool = False
    """Whether to start the peer without a broker."""
    timeout: float | None = None
    """Maximum number of seconds for all attempts together, including the start of each peer."""
    deadline: Deadline | None = None
    """When all attempts must have ended, if the time limit began before the delegation."""

    def __post_init__(self) -> None:
        words = {"role": self.role, "prompt": self.prompt, "peer": self.peer, "model": self.model}
        for name, word in words.items():
            try:
                (word or "").encode()
            except UnicodeEncodeError as error:
                where = f"character {error.start + 1}"
                raise UsageError(f"the {name} is not valid Unicode text: {where}") from None
        if not self.prompt.strip():
            raise UsageError("there is nothing to delegate: the prompt is empty")
        if self.tier is not None and self.tier not in TIERS:
            raise UsageError(f"there is no tier {self.tier!r}: use {', '.join(TIERS)}")
        if self.apply and not self.isolate:
            raise UsageError("--apply needs --isolate: only a patch from a worktree can be applied")


@dataclass(frozen=True, slots=True)
class Assigned:
    """Peer, role and instructions of an agent file."""

    peer: str | None
    role: str | None
    instructions: str

    def prompt(self, text: str) -> str:
        """Return the prompt, preceded by the agent's instructions if it has any."""
        return f"{self.instructions}\n\n{text}" if self.instructions else text


def read_agent(file: Path, catalogue: Catalogue) -> Assigned:
    """Read an agent file, and return the peer and role that it delegates to and its instructions.

    Raises `DelegationInvalid` for a target that does not exist, and `UsageError` for a file that
    cannot be used or an agent that must not be delegated.
    """
    from dragoman.catalogue.agent_files import OPT_OUT, list_files, parse_target

    (found,) = list_files([file], catalogue)
    if found.problem is not None:
        if found.value:
            parse_target(found.value, catalogue)  # Raises the problem as an error.
        raise UsageError(str(found.problem))
    if found.value == OPT_OUT:
        raise UsageError(f"{file} says `delegate_to: none`: this agent's work is not delegated")
    target = found.target
    body = _body(file.read_text("utf-8", "replace"))
    if target is None:
        return Assigned(None, None, body)
    return Assigned(target.peer, target.role, body)


def _body(text: str) -> str:
    """Return the text after the front matter; all of it if there is none."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return text.strip()
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() in ("---", "..."):
            return "\n".join(lines[number + 1 :]).strip()
    return ""

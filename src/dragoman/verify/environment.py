"""Temporary workspace, home directory and environment variables for a verification.

An unknown program gets no credentials, no model endpoints and an empty home (careful mode): it may
treat the handshake as a prompt and send it to a model.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.catalogue.launch import LaunchSpec
from dragoman.errors import FileFailed, SpawnError
from dragoman.runs import git
from dragoman.transports.process.environment import NETWORK_NAMES

SECRET: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|URL|URI|ENDPOINT|HOST|PROXY", re.IGNORECASE
)
"""Matches the names of variables that may contain a credential or the endpoint of a model."""

HOMES: Final[Mapping[str, str]] = {
    "HOME": "",
    "USERPROFILE": "",
    "XDG_CONFIG_HOME": ".config",
    "XDG_CACHE_HOME": ".cache",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_RUNTIME_DIR": ".run",
    "APPDATA": "AppData/Roaming",
    "LOCALAPPDATA": "AppData/Local",
}
"""Variables that point to a user's files, and their paths in the empty home."""

CUT: Final = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS")
"""Variables that programs usually inherit. An unknown program does not get them: they give access
to the user's SSH keys, or to settings outside the empty home."""

PROXIES: Final = tuple(name for name in NETWORK_NAMES if name.lower().endswith("proxy"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEnvironment:
    """The temporary workspace and the environment variables of the peer under verification."""

    workspace: Path
    """Empty except for `.git`, and removed afterwards."""
    marks: Path
    """A directory outside the workspace, for files that must not be in the workspace."""
    env: Mapping[str, str]
    inherit: tuple[str, ...]


@contextmanager
def surroundings(way: LaunchSpec, *, careful: bool) -> Iterator[PeerEnvironment]:
    """Context manager: yield the environment for one verification, with temporary directories that
    are removed afterwards. Raises `FileFailed` if they cannot be created."""
    with contextlib.ExitStack() as stack:
        try:
            top = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="dragoman-verify-", ignore_cleanup_errors=True)
            )
            # A link in the path would make the peer's paths differ from ours.
            base = Path(os.path.realpath(top))
            workspace, marks, home = base / "workspace", base / "marks", base / "home"
            for folder in (workspace, marks, home):
                folder.mkdir()
        except OSError as error:
            detail = f"no workspace for the verification: {error.strerror or error}"
            raise FileFailed("the temporary directory", detail, error.errno) from error
        yield PeerEnvironment(
            workspace=workspace,
            marks=marks,
            env=careful_environment(way, home) if careful else dict(way.env),
            inherit=() if careful else way.inherit,
        )


async def make_repository(workspace: Path) -> None:
    """Make the workspace a git repository with one commit: agents usually work in a repository, and
    some ask for permission only outside of one. Without git it stays a plain directory."""
    commit = ("-c", "user.name=dragoman", "-c", "user.email=dragoman@localhost", "commit")
    with contextlib.suppress(SpawnError):
        # The user's templates may contain hooks.
        if (await git.ask(("init", "--quiet", "--template="), cwd=workspace)).ok:
            await git.ask((*commit, "--quiet", "--allow-empty", "-m", "Begin"), cwd=workspace)


def careful_environment(way: LaunchSpec, home: Path) -> dict[str, str]:
    """Return the environment variables for an unknown program (careful mode): those of `way` except
    any that may contain a credential or an endpoint, with `home` as the home directory, and with
    empty values for proxies and the variables in `CUT`."""
    env = {name: value for name, value in way.env.items() if not is_secret(name, way)}
    env |= {name: str(home / place) if place else str(home) for name, place in HOMES.items()}
    # For these an empty value means unset; the allow-list itself cannot be shortened.
    env |= dict.fromkeys((*CUT, *PROXIES), "")
    return env


def is_secret(name: str, way: LaunchSpec) -> bool:
    """Return whether a variable may contain a credential or the endpoint of a model."""
    known = way.descriptor.credentials if way.descriptor is not None else None
    if known is not None and name in (*known.env, *known.endpoints):
        return True
    return SECRET.search(name) is not None

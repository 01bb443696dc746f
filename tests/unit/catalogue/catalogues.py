"""Small catalogues for tests: peers with names and roles, and nothing else that matters."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.catalogue import Catalogue, Descriptor, KnownPeer, Launch


def peer(name: str, *roles: str, command: Sequence[str] = ("true",)) -> Descriptor:
    return Descriptor(
        name=name, title=name.title(), launch=(Launch(command=tuple(command)),), roles=roles
    )


def catalogue(*peers: Descriptor) -> Catalogue:
    made = Catalogue(KnownPeer(each, "test") for each in peers)
    assert not made.problems
    return made


USUAL = catalogue(
    peer("codex", "execute"),
    peer("codex-acp", "execute", "plan"),
    peer("gemini", "research", "exploration"),
    peer("scout", "exploration"),
)

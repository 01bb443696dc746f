"""Places for tests: an empty folder to work in, and folders of dragoman's own beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dragoman.catalogue.card import Card, MeasuredFacts, RungResult, RungVerdict
from dragoman.runs.context import RunContext, load_context

FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")


def place_in(folder: Path, environ: Mapping[str, str] | None = None) -> RunContext:
    """A place where only what stands in `folder` counts."""
    work, bin = folder / "work", folder / "bin"
    work.mkdir(exist_ok=True)
    bin.mkdir(exist_ok=True)
    own = {f"DRAGOMAN_{name}": str(folder / name.lower()) for name in FOLDERS}
    return load_context(work, environ={"PATH": str(bin), **own, **(environ or {})})


def program(folder: Path, name: str, text: str = "#!/bin/sh\nexit 1\n") -> Path:
    """A program on the PATH of such a place. It shall never be started."""
    file = folder / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def agent_file(place: RunContext, name: str, value: str) -> Path:
    file = place.cwd / "agents" / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"---\ndelegate_to: {value}\n---\n")
    return file


def card_of(
    peer: str,
    *,
    usable: bool = True,
    version: str | None = "1.2.3",
    turns: bool = False,
    facts: MeasuredFacts | None = None,
    verdict: RungVerdict = RungVerdict.PASS,
) -> Card:
    rung = RungResult(rung="handshake", verdict=verdict, evidence="it answered", remedy="wait")
    return Card(
        peer=peer,
        version=version,
        platform="linux",
        measured_at="2026-05-04T03:02:01+00:00",
        dragoman="0.1.0",
        turns=turns,
        reached="handshake",
        usable=usable,
        rungs=(rung,),
        facts=facts or MeasuredFacts(dialect="acp", agent_name="Mine Agent"),
    )

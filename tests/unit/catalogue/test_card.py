from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from dragoman.catalogue.card import (
    CARD_FORMAT,
    Card,
    CardStore,
    MeasuredFacts,
    RungResult,
    RungVerdict,
    to_know,
)
from dragoman.errors import FileFailed
from dragoman.verify import remedies


def test_what_was_not_measured_is_unknown_and_not_false() -> None:
    assert set(msgspec.structs.asdict(MeasuredFacts()).values()) == {None}


def test_a_card_survives_its_json_with_unknown_and_false_told_apart() -> None:
    card = Card(
        peer="gemini",
        version="0.61.0",
        platform="linux",
        measured_at="2026-11-15T00:00:00+00:00",
        dragoman="0.1",
        turns=True,
        reached="echo",
        usable=True,
        rungs=(RungResult(rung="echo", verdict=RungVerdict.PASS, evidence="it said hello"),),
        facts=MeasuredFacts(echo=True, cancel=False, models=("a", "b")),
    )
    again = msgspec.json.decode(msgspec.json.encode(card), type=Card)
    assert again == card
    assert again.format == CARD_FORMAT
    assert (again.facts.echo, again.facts.cancel, again.facts.usage) == (True, False, None)


def test_warnings_and_failures_are_what_a_user_has_to_know() -> None:
    warning = RungResult(rung="late updates", verdict=RungVerdict.WARN, evidence="late")
    passed = RungResult(rung="binary", verdict=RungVerdict.PASS, evidence="found")
    card = Card(
        peer="x",
        version="1.2",
        platform="linux",
        measured_at="",
        dragoman="",
        turns=True,
        reached="",
        usable=True,
        rungs=(passed, warning),
    )
    assert to_know(card) == ["late updates: late"]


def test_what_dragoman_handles_and_the_details_of_a_warning_are_only_on_the_whole_card() -> None:
    handled = RungResult(
        rung="noise", verdict=RungVerdict.WARN, evidence="noisy", remedy=remedies.NOISE
    )
    warning = RungResult(
        rung="models",
        verdict=RungVerdict.WARN,
        evidence="some models are previews, such as x; 121 models: a, b, …",
        remedy="Name others.",
    )
    failure = RungResult(rung="echo", verdict=RungVerdict.FAIL, evidence="it failed; 500")
    card = Card(
        peer="x",
        version="1.2",
        platform="linux",
        measured_at="",
        dragoman="",
        turns=True,
        reached="",
        usable=True,
        rungs=(handled, warning, failure),
    )
    assert to_know(card) == [
        "models: some models are previews, such as x",
        "echo: it failed; 500",
    ]


def card(version: str | None = "1.0", at: str = "2026-01-01T00:00:00+00:00") -> Card:
    return Card(
        peer="gemini",
        version=version,
        platform="linux",
        measured_at=at,
        dragoman="0.1",
        turns=False,
        reached="session",
        usable=True,
        rungs=(),
    )


def test_a_card_is_found_again_by_peer_version_and_platform(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    path = store.save(card())
    assert path == tmp_path / "gemini" / "1.0-linux.json"
    assert CardStore(tmp_path).load("gemini", "1.0", "linux") == card()


def test_another_version_has_no_card_so_that_it_is_measured_again(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    store.save(card("1.0"))
    assert store.load("gemini", "1.1", "linux") is None
    assert store.load("gemini", "1.0", "macos") is None
    assert store.load("qwen", "1.0", "linux") is None
    assert store.trouble == {}


def test_the_latest_card_is_the_one_that_was_measured_last(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    store.save(card("2.0", "2026-01-01T00:00:00+00:00"))
    store.save(card("1.9", "2026-03-01T00:00:00+00:00"))
    latest = store.latest("gemini")
    assert latest is not None and latest.version == "1.9"
    assert store.latest("qwen") is None


def test_a_peer_that_does_not_say_its_version_has_a_card_too(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    assert store.save(card(None)).name == "unknown-linux.json"
    assert store.load("gemini", None, "linux") == card(None)


@pytest.mark.parametrize("version", ["../../etc/passwd", "1.0/2", "..", "a\0b", "1.0 beta"])
def test_no_version_leads_out_of_the_folder(tmp_path: Path, version: str) -> None:
    store = CardStore(tmp_path / "cards")
    path = store.save(card(version))
    assert path.parent == tmp_path / "cards" / "gemini"
    assert store.load("gemini", version, "linux") == card(version)


def test_versions_that_share_a_file_are_not_taken_for_each_other(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    store.save(card("1.0/2"))
    assert store.load("gemini", "1.0 2", "linux") is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": 1}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_file_is_not_a_card_and_the_reason_is_kept(tmp_path: Path, text: bytes) -> None:
    store = CardStore(tmp_path)
    path = store.save(card())
    path.write_bytes(text)
    assert store.load("gemini", "1.0", "linux") is None
    assert "peers verify" in store.trouble[path]
    assert store.latest("gemini") is None
    store.save(card())
    assert store.trouble == {}


def test_a_card_of_another_format_is_measured_again(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    path = store.save(card())
    fields = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**fields, "format": CARD_FORMAT + 1}))
    assert store.load("gemini", "1.0", "linux") is None
    assert f"format {CARD_FORMAT + 1}" in store.trouble[path]


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.catalogue.card.MAX_SIZE", 100)
    store = CardStore(tmp_path)
    path = store.save(card())
    assert store.load("gemini", "1.0", "linux") is None
    assert "too large" in store.trouble[path]


def test_a_card_that_cannot_be_written_leaves_the_old_one_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CardStore(tmp_path)
    path = store.save(card())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileFailed, match="No space"):
        store.save(card(at="2026-05-05T00:00:00+00:00"))
    assert store.load("gemini", "1.0", "linux") == card()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_to_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file in the way")
    with pytest.raises(FileFailed, match=r"the card could not be stored: Not a directory"):
        CardStore(tmp_path / "data" / "cards").save(card())


def test_a_version_of_any_length_has_a_card(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    store.save(card("9" * 5000))
    assert store.load("gemini", "9" * 5000, "linux") is not None
    assert store.load("gemini", "9" * 4999, "linux") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes of POSIX")
def test_a_special_file_is_not_a_card_and_blocks_nothing(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    path = store.path("gemini", "1.0", "linux")
    path.parent.mkdir()
    os.mkfifo(path)
    assert store.load("gemini", "1.0", "linux") is None
    assert "not a regular file" in store.trouble[path]


def test_a_peer_of_another_version_than_its_card_is_to_be_measured_again(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    assert store.outdated("gemini", "1.1") is None
    store.save(card("1.0"))
    assert store.outdated("gemini", "1.0") is None
    assert store.outdated("gemini", None) is None
    told = store.outdated("gemini", "1.1")
    assert told is not None and "1.0" in told and "dragoman peers verify gemini" in told

"""The line editor of a chat: its history. The keys are tested in tests/integration/test_cli_chat.py
at a real terminal."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from dragoman.cli import chat_input
from dragoman.cli.chat_commands import Suggestion
from dragoman.cli.chat_input import ENTRY_SIZE, ChatCompleter, ChatHistory
from dragoman.errors import StoreCorrupt


def history_in(folder: Path, troubles: list[str] | None = None) -> ChatHistory:
    def redact(text: str) -> str:
        return text.replace("hunter2", "***")

    told = [] if troubles is None else troubles
    return ChatHistory(folder / "state" / "chat_history", redact, told.append)


def test_the_history_is_kept_for_the_next_chat_without_secrets(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        first = history_in(tmp_path)
        for text in ("one", "the password is hunter2", " not this one", "two\nlines", "é\x1b"):
            first.append_string(text)
    finally:
        os.umask(before)
    assert list(history_in(tmp_path).load_history_strings()) == [
        "é\x1b",
        "two\nlines",
        "the password is ***",
        "one",
    ]
    path = tmp_path / "state" / "chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    history_in(tmp_path).append_string("three")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert " not this one" not in first.get_strings()


def test_the_history_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_input, "HISTORY_SIZE", 100)
    history = history_in(tmp_path)
    for number in range(50):
        history.append_string(f"prompt {number}")
    history.append_string("x" * (ENTRY_SIZE + 1))
    kept = list(history_in(tmp_path).load_history_strings())
    assert kept[0] == "prompt 49" and 2 < len(kept) < 10


def test_a_line_that_is_none_is_passed_over_and_trouble_is_reported_once(tmp_path: Path) -> None:
    history_in(tmp_path).append_string("one")
    path = tmp_path / "state" / "chat_history"
    path.write_bytes(path.read_bytes() + b'"cut of\n\xff\n5\n"two"\n')
    assert list(history_in(tmp_path).load_history_strings()) == ["two", "one"]
    path.unlink()
    path.mkdir()
    troubles: list[str] = []
    broken = history_in(tmp_path, troubles)
    assert list(broken.load_history_strings()) == []
    broken.append_string("three")
    broken.append_string("not \udcff UTF-8")
    assert len(troubles) == 1 and "history" in troubles[0]
    assert broken.get_strings() == ["three", "not \udcff UTF-8"], "within this chat it is there"


def test_completions_show_what_they_are_about_without_control_characters() -> None:
    completer = ChatCompleter(lambda text: [Suggestion("/help", len(text), "show\x1b[2J")])
    (found,) = completer.get_completions(Document("/he"), CompleteEvent())
    assert (found.text, found.start_position, found.display_meta_text) == ("/help", -3, "show␛[2J")


def test_a_store_that_cannot_be_read_has_no_completions() -> None:
    def complete(text: str) -> list[Suggestion]:
        raise StoreCorrupt("sessions.db", "it is damaged")

    found = ChatCompleter(complete).get_completions(Document("/sessions "), CompleteEvent())
    assert list(found) == []

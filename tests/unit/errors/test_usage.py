"""What errors of whoever asks say: the name that was wrong, and what to do."""

from __future__ import annotations

from dragoman.errors import (
    DragomanError,
    MessageTooLong,
    NoPeer,
    RoleNotClaimed,
    UnknownPeer,
    UsageError,
)
from dragoman.errors.usage import alternatives, nearest, shown


def test_an_unknown_peer_is_named_with_those_that_are_near() -> None:
    error = UnknownPeer("gemni", ("gemini",))
    assert "'gemni'" in str(error) and "gemini" in str(error)
    assert error.nearest == ("gemini",)


def test_a_role_that_is_not_claimed_comes_with_those_that_are() -> None:
    assert "it claims review, write" in str(RoleNotClaimed("qwen", "debug", ("review", "write")))
    assert "it claims none" in str(RoleNotClaimed("qwen", "debug"))


def test_a_message_that_is_too_long_tells_both_numbers() -> None:
    told = str(MessageTooLong(20, 10))
    assert "20" in told and "10" in told


def test_what_keeps_everybody_is_said_once_and_kept_for_each() -> None:
    error = NoPeer("plan", {"a": "too deep", "b": "too deep"})
    assert str(error) == "no peer can be used for plan: too deep"
    assert error.reasons == {"a": "too deep", "b": "too deep"}
    mixed = NoPeer("plan", {"a": "too deep", "b": "parked"})
    assert str(mixed) == "no peer can be used for plan; a: too deep; b: parked"


def test_alternatives_are_all_there_is_or_the_closest_few() -> None:
    assert alternatives("x", []) == "it has none"
    assert alternatives("x", ["a", "b"]) == "it has a, b"
    assert alternatives("smal", ["small", "large"]) == "did you mean small? It has small, large"
    many = [f"model-{n}" for n in range(130)]
    assert alternatives("nothing like it", many) == "it has 130, such as model-0, model-1, model-2"
    assert alternatives("MODEL-77", many).startswith("did you mean model-77 or ")
    assert alternatives("opus", ["anthropic/claude-opus-4", *many]) == (
        "did you mean anthropic/claude-opus-4? It has 131 in total"
    )


def test_only_names_about_as_close_as_the_best_are_guessed() -> None:
    known = ["scout", "cursor", "copilot", "codex", "codex-acp"]
    assert nearest("scuot", known) == ["scout"]
    assert nearest("codx", known)[0] == "codex"
    assert nearest("Scuot", known) == ["scout"], "whatever the case is"
    assert nearest("zzz", known) == []
    assert nearest("co", ["code-helper"]) == [], "a part of a name is not a misspelling"


def test_what_a_peer_sent_is_quoted_and_cut_where_it_is_absurdly_long() -> None:
    assert shown("a\nb") == "'a\\nb'"
    long = shown("x" * 5000)
    assert len(long) < 200 and "5000 characters" in long


def test_a_wrong_use_is_our_own_fault_and_nothing_has_run() -> None:
    error = UsageError("no")
    assert isinstance(error, DragomanError)
    assert (error.blame, error.retryable, error.may_have_run) == ("us", False, False)

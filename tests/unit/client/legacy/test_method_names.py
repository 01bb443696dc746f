"""Which of several names is tried, and what is remembered of it."""

from __future__ import annotations

import pytest

from dragoman.client.legacy.method_names import MethodNames, proves_nothing_ran
from dragoman.dialects.discovery import MemoryCache, Program
from dragoman.errors import CallTimeout, RemoteError, Unsupported

PROGRAM = Program("/bin/agent", 1, 2)
MESSAGES = [("a", 1), ("b", 2), ("c", 3)]


def test_without_knowledge_the_order_stays() -> None:
    assert MethodNames("chained").order("list", MESSAGES) == MESSAGES
    assert MethodNames("chained").known("list") is None


def test_the_name_that_worked_comes_first() -> None:
    chains = MethodNames("chained")
    chains.worked("list", "c")
    assert chains.order("list", MESSAGES) == [("c", 3), ("a", 1), ("b", 2)]
    assert chains.order("create", MESSAGES) == MESSAGES


def test_where_nothing_works_nothing_is_sent() -> None:
    chains = MethodNames("chained")
    chains.failed("list")
    with pytest.raises(Unsupported):
        chains.order("list", MESSAGES)


def test_what_was_found_out_outlives_the_connection_for_the_same_program_only() -> None:
    cache = MemoryCache()
    MethodNames("chained", cache, PROGRAM).worked("list", "b")
    assert MethodNames("chained", cache, PROGRAM).known("list") == "b"
    assert MethodNames("chained", cache, Program("/bin/agent", 1, 3)).known("list") is None
    assert MethodNames("other", cache, PROGRAM).known("list") is None
    assert MethodNames("chained", cache).known("list") is None


def test_nothing_is_written_about_a_program_that_is_not_known() -> None:
    cache = MemoryCache()
    MethodNames("chained", cache).worked("list", "b")
    assert MethodNames("chained", cache).known("list") is None


def test_only_a_missing_method_proves_that_nothing_ran() -> None:
    assert proves_nothing_ran(RemoteError(-32601, "Method not found"), "a")
    assert proves_nothing_ran(RemoteError(-32600, "unknown variant `a`"), "a")
    assert not proves_nothing_ran(RemoteError(-32600, "unknown variant `b`"), "a")
    for code in (-32603, -32602, -32000, 0):
        assert not proves_nothing_ran(RemoteError(code, "no"), "a")
    assert not proves_nothing_ran(CallTimeout("a", 1.0), "a")
    assert not proves_nothing_ran(None, "a")


def test_two_launches_of_one_interpreter_are_two_programs() -> None:
    cache = MemoryCache()
    MethodNames("chained", cache, PROGRAM, "one").worked("list", "listSessions")
    assert MethodNames("chained", cache, PROGRAM, "one").known("list") == "listSessions"
    assert MethodNames("chained", cache, PROGRAM, "two").known("list") is None

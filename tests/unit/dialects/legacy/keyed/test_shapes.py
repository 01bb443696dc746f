"""The shapes of the keyed dialect: every example of the document, read and written as it is."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.dialects.legacy.keyed import shapes
from tests.fixtures.documents import load
from tests.unit.dialects.document_reading import includes, round_trip

EXAMPLES = load("keyed")
SHAPES: dict[str, Any] = {
    "initialize": shapes.Initialize,
    "initialized": shapes.Initialized,
    "password": shapes.Authenticate,
    "oauth": shapes.Authenticate,
    "new": shapes.NewSession,
    "opened": shapes.Opened,
    "load": shapes.LoadSession,
    "loaded": shapes.Opened,
    "prompt": shapes.Prompt,
    "chunk": shapes.Update,
    "tool": shapes.Update,
    "plan": shapes.Update,
    "mode": shapes.Update,
    "everything": shapes.Update,
    "permission": shapes.AskPermission,
    "once": shapes.Decision,
    "reject": shapes.Decision,
    "set_mode": shapes.SetMode,
    "cancel": shapes.Cancel,
    "end_turn": shapes.Stopped,
    "max_tokens": shapes.Stopped,
    "cancelled": shapes.Stopped,
    "tool_error": shapes.Stopped,
    "read": shapes.ReadFile,
    "content": shapes.FileContent,
    "write": shapes.WriteFile,
    "create_terminal": shapes.CreateTerminal,
    "terminal": shapes.Terminal,
    "terminal_output": shapes.TerminalName,
    "output": shapes.TerminalOutput,
    "terminal_wait": shapes.TerminalName,
    "exit": shapes.TerminalExit,
    "killed": shapes.TerminalExit,
    "terminal_kill": shapes.TerminalName,
    "terminal_release": shapes.TerminalName,
    "initialize_bare": shapes.Initialize,
    "initialized_bare": shapes.Initialized,
    "new_bare": shapes.NewSession,
    "opened_bare": shapes.Opened,
    "load_servers": shapes.LoadSession,
    "prompt_more": shapes.Prompt,
    "tool_pending": shapes.Update,
    "tool_failed": shapes.Update,
    "permission_bare": shapes.AskPermission,
    "always": shapes.Decision,
    "read_whole": shapes.ReadFile,
    "create_terminal_bare": shapes.CreateTerminal,
    "output_running": shapes.TerminalOutput,
    "output_killed": shapes.TerminalOutput,
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_example_of_the_document_is_read_and_written_as_it_is(name: str) -> None:
    written = round_trip(EXAMPLES[name], SHAPES[name])
    if name.endswith("_bare"):
        assert includes(written, EXAMPLES[name].body)
    else:
        assert written == EXAMPLES[name].body


def test_no_example_is_forgotten() -> None:
    assert set(EXAMPLES) - set(SHAPES) == {"written", "auth_required"}

from __future__ import annotations

import sys
from pathlib import Path

from dragoman.testing.chaos import children
from dragoman.verify import canary_mcp_server


def test_a_command_runs_in_its_folder_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    assert children.run("pwd > here; exit 3", cwd=str(tmp_path)) == 3
    assert (tmp_path / "here").read_text().strip() == str(tmp_path)


def test_an_mcp_server_is_asked_and_ended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    argv = [sys.executable, "-I", str(canary_mcp_server.__file__), str(mark)]
    server = children.McpServer(argv, {"X": "1"}, cwd=str(tmp_path))
    try:
        answer = server.ask(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}')
    finally:
        server.end()
    assert canary_mcp_server.NAME.encode() in answer
    assert mark.read_text().split() == ["started", "initialize"]


def test_a_server_that_cannot_be_started_answers_nothing(tmp_path: Path) -> None:
    server = children.McpServer([str(tmp_path / "nothing")], {}, cwd=str(tmp_path))
    try:
        assert server.ask(b"{}") == b""
    finally:
        server.end()

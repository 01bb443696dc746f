from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from dragoman.verify import canary_mcp_server


def talk(mark: Path, *messages: Any) -> list[dict[str, Any]]:
    source = io.StringIO("".join(f"{json.dumps(message)}\n" for message in messages))
    sink = io.StringIO()
    canary_mcp_server.serve(source, sink, str(mark))
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_the_canary_leaves_a_mark_when_it_is_started_and_when_it_is_used(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    talk(mark, {"id": 1, "method": "initialize"}, {"method": "notifications/initialized"})
    assert mark.read_text().split() == ["started", "initialize", "notifications/initialized"]


def test_the_canary_agrees_on_the_requested_version(tmp_path: Path) -> None:
    asked = {"id": 1, "method": "initialize", "params": {"protocolVersion": "2099-01-01"}}
    [named] = talk(tmp_path / "mark", asked)
    assert named["result"]["protocolVersion"] == "2099-01-01"
    [unnamed] = talk(tmp_path / "mark", {"id": 1, "method": "initialize"})
    assert unnamed["result"]["protocolVersion"] == canary_mcp_server.VERSION


def test_the_one_tool_of_the_canary_can_be_listed_and_called(tmp_path: Path) -> None:
    tools, song = talk(
        tmp_path / "mark",
        {"id": 1, "method": "tools/list"},
        {"id": 2, "method": "tools/call", "params": {"name": canary_mcp_server.TOOL}},
    )
    assert [tool["name"] for tool in tools["result"]["tools"]] == [canary_mcp_server.TOOL]
    assert song["result"]["content"][0]["text"] == canary_mcp_server.SONG


def test_unknown_methods_are_refused_and_invalid_messages_are_ignored(tmp_path: Path) -> None:
    source = io.StringIO('garbage\n[1]\n{"id": 1}\n{"id": 2, "method": "resources/list"}\n')
    sink = io.StringIO()
    canary_mcp_server.serve(source, sink, str(tmp_path / "mark"))
    [answer] = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert answer["id"] == 2
    assert answer["error"]["code"] == -32601


def test_a_ping_is_answered_with_nothing(tmp_path: Path) -> None:
    assert talk(tmp_path / "mark", {"id": 7, "method": "ping"})[0]["result"] == {}

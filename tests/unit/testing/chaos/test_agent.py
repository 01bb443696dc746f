from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dragoman.testing.chaos import command

WAIT = 20.0


def talk(fault: str, *messages: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of an agent with a fault, and all that it said, noise left out."""
    lines = "".join(f"{json.dumps({'jsonrpc': '2.0', **message})}\n" for message in messages)
    ended = subprocess.run(
        command(fault), input=lines, capture_output=True, text=True, timeout=WAIT, check=False
    )
    said = []
    for line in ended.stdout.splitlines():
        if line.startswith('{"jsonrpc"'):
            said.append(json.loads(line))
    return ended.returncode, said


def asks(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"id": id, "method": method, "params": params}


HELLO = asks(0, "initialize", protocolVersion=1)


def test_a_chaos_agent_ends_with_its_input_and_refuses_unknown_requests(tmp_path: Path) -> None:
    code, said = talk(
        "healthy",
        HELLO,
        asks(1, "nobody/knows"),
        asks(2, "session/new", cwd=42),
        asks(3, "session/prompt", sessionId="none", prompt=[]),
        asks(4, "session/new", cwd=str(tmp_path), mcpServers=[]),
    )
    assert code == 0
    assert said[0]["result"]["protocolVersion"] == 1
    assert [answer["error"]["code"] for answer in said[1:4]] == [-32601, -32602, -32002]
    assert said[4]["result"]["configOptions"][0]["category"] == "model"


def test_a_session_is_remembered_by_another_process(tmp_path: Path) -> None:
    _, said = talk("healthy", asks(0, "session/new", cwd=str(tmp_path), mcpServers=[]))
    id = said[0]["result"]["sessionId"]
    _, said = talk(
        "healthy",
        asks(0, "session/list", cwd=str(tmp_path)),
        asks(1, "session/resume", sessionId=id, cwd=str(tmp_path)),
        asks(2, "session/prompt", sessionId=id, prompt=[{"type": "text", "text": "hello"}]),
    )
    assert [one["sessionId"] for one in said[0]["result"]["sessions"]] == [id]
    _, said = talk("healthy", asks(0, "session/load", sessionId=id, cwd=str(tmp_path)))
    kinds = [one["params"]["update"]["sessionUpdate"] for one in said if "method" in one]
    assert kinds == ["user_message_chunk", "agent_message_chunk"]
    assert said[-1]["id"] == 0


def test_no_session_outside_of_its_folder_can_be_recalled(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    _, said = talk("healthy", asks(0, "session/load", sessionId="../secret", cwd=str(tmp_path)))
    assert said[0]["error"]["code"] == -32002


@pytest.mark.parametrize(
    ("fault", "code"), [("exits-with-usage", 2), ("dies-at-start", -9), ("healthy", 0)]
)
def test_how_it_ends_depends_on_its_fault(fault: str, code: int) -> None:
    assert talk(fault, HELLO)[0] == code


def test_an_answer_that_is_late_comes_with_the_next_message() -> None:
    _, said = talk("answers-late", asks(1, "nobody/knows"), HELLO)
    assert [answer["id"] for answer in said] == [1, 0]
    _, said = talk("answers-late", asks(1, "nobody/knows"))
    assert said == []


def test_responses_may_come_twice_or_without_a_request() -> None:
    assert [answer["id"] for answer in talk("answers-twice", HELLO)[1]] == [0, 0]
    ids = [answer["id"] for answer in talk("unknown-ids", HELLO)[1]]
    assert ids[-1] == 0 and ids[0] > 1000


def test_a_hang_concerns_one_method_only() -> None:
    _, said = talk("hang:session/list", HELLO, asks(1, "session/list"), asks(2, "nobody/knows"))
    assert [answer["id"] for answer in said] == [0, 2]


def test_the_agent_needs_nothing_of_its_surroundings(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("healthy"),
        input="",
        text=True,
        timeout=WAIT,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.defpath},
    )
    assert ended.returncode == 0

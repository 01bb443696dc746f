from __future__ import annotations

from dragoman.testing.chaos.canaries import TRIGGERS
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, reply_to
from dragoman.verify.canary_prompts import fill


def replied(prompt: str) -> Reply:
    tools = tuple(Tool(name) for name in ("write_file", "run_shell_command", "sing"))
    return reply_to(Asked("m", prompt, tools=tools))


def test_the_fake_model_understands_every_canary() -> None:
    said = replied(fill(TRIGGERS.echo, token="anchorage"))
    assert "anchorage" in said.text and len(said.chunks) > 1
    assert replied(TRIGGERS.slow).interval > 0
    write = replied(fill(TRIGGERS.write, path="/w/granted.txt", text="abc")).call
    assert write is not None and write.arguments == {
        "file_path": "/w/granted.txt",
        "content": "abc",
    }
    shell = replied(fill(TRIGGERS.shell, command="echo ran > ran.txt")).call
    assert shell is not None and shell.arguments == {"cmd": "echo ran > ran.txt"}
    tool = replied(fill(TRIGGERS.tool, tool="sing", server="dragoman-canary")).call
    assert tool is not None and tool.name == "sing"
    assert TRIGGERS.failure is not None
    assert replied(TRIGGERS.failure).status == 400

"""What a person is told who has to log in: the command is shown, and nothing is run."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.acp import login
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError

REFUSED = RemoteError(-32000, "Authentication required", {"why": "no key"})
LAUNCH = ["/opt/some agent", "--acp"]


def method(**fields: Any) -> acp.AuthMethod:
    found: acp.AuthMethod = acp.convert({"id": "m", "name": "M", **fields}, acp.AuthMethod)
    return found


def test_a_terminal_login_is_the_agents_own_program_with_other_arguments() -> None:
    terminal = method(type="terminal", args=["login", "a b"], env={"LANG": "C", "K": "v w"})
    assert login.command(terminal, LAUNCH) == "LANG=C K='v w' '/opt/some agent' --acp login 'a b'"


def test_a_terminal_login_of_an_agent_that_we_did_not_start_has_a_gap_in_its_command() -> None:
    assert login.command(method(type="terminal", args=["login"]), []) == "'<agent>' login"


@pytest.mark.parametrize(
    ("meta", "command"),
    [
        ({"terminal-auth": {"command": "/bin/x y", "args": ["login"]}}, "'/bin/x y' login"),
        ({"terminal-auth": {"command": "x"}}, "x"),
        ({"terminal-auth": {"command": "x", "args": ["a", 7, None]}}, "x a"),
        ({"terminal-auth": {"command": "x", "args": "a b"}}, "x"),
        ({"terminal-auth": {"command": 7}}, None),
        ({"terminal-auth": "x login"}, None),
        ({"type": "terminal", "args": ["--auth=key"]}, "'/opt/some agent' --acp --auth=key"),
        ({"type": "terminal"}, "'/opt/some agent' --acp"),
        ({"type": "agent", "args": ["x"]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_command_that_the_agent_suggests_is_read_with_caution(
    meta: dict[str, Any] | None, command: str | None
) -> None:
    assert login.command(method(_meta=meta), LAUNCH) == command


def test_every_method_has_its_hint() -> None:
    methods = [
        method(type="terminal", args=["login"]),
        method(type="env_var", vars=[{"name": "A_KEY"}, {"name": "B_KEY"}]),
        method(name="Browser", description="opens a page"),
        method(name="Plain"),
        method(type="env_var", name="Empty", vars=[]),
    ]
    error = login.required(REFUSED, methods, LAUNCH)
    assert error.hint == (
        "log in first: run `'/opt/some agent' --acp login`; "
        "or set A_KEY, B_KEY and start again; "
        "or use 'Browser': opens a page; "
        "or use 'Plain'; "
        "or use 'Empty'"
    )
    assert error.methods == tuple(methods)
    assert error.data == {"why": "no key"}
    assert error.hint in str(error)
    assert error.code == -32000
    assert not error.may_have_run


def test_an_agent_without_methods_leaves_the_user_to_find_out() -> None:
    assert login.required(REFUSED, [], LAUNCH).hint == "log in to the agent first"


def test_better_advice_replaces_what_the_agent_offers() -> None:
    method = acp.AuthMethodAgent(id="m", name="Log in", description="somewhere")
    error = login.required(RemoteError(-32000, "no"), [method], ["agent"], "run `agent login`")
    assert error.hint == "log in first: run `agent login`"
    assert error.methods == (method,)

"""A peer with a Python adapter, from the command line to the agent in a child process and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.client.brokers import list_brokers
from dragoman.paths import find_paths
from tests.integration.cli_shell import AGENT, Cli, cli_in, warm_cli
from tests.integration.pty_terminal import CTRL_C

PROJECT = """
enabled_peers = ["tool"]

[peers.tool]
title = "Tool"
protocol = "acp"
roles = ["plan", "review"]
adapter = "tool_adapter.py"

[[peers.tool.launch]]
command = {command}
"""

ADAPTER = """
from dragoman.adapters import judge, open_peer
from dragoman.errors import RoleNotClaimed

name, protocol = "tool", "acp"
ROLES_CLAIMED = ["plan", "review"]
ROLE_PREFIX = {"plan": "ADAPTED ", "review": "REVIEWED "}

def claims(role):
    return role in ROLES_CLAIMED

async def dispatch(launch, role, text, on_notification=None):
    if not claims(role):
        raise RoleNotClaimed(name, role, ROLES_CLAIMED)
    async with (
        open_peer(launch.way, launch.options(on_notification), workspace=launch.cwd) as peer,
        peer.session(mode=launch.mode, model=launch.model) as session,
    ):
        prefix = "" if text.split()[0] in ("wait", "write", "settings") else ROLE_PREFIX[role]
        result = await session.ask(prefix + text)
    return judge(result, launch.way.quirks)
"""

FAILING = ADAPTER.replace(
    "    async with (", '    raise LookupError("no table for " + role)\n    async with ('
)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def project(cli: Cli, adapter: str | None = ADAPTER, *, trusted: bool = True) -> Path:
    """A project with a peer whose adapter has this code; the adapter's file."""
    (cli.cwd / "dragoman.toml").write_text(PROJECT.format(command=json.dumps(list(cli.agent))))
    file = cli.cwd / "tool_adapter.py"
    if adapter is not None:
        file.write_text(adapter)
    if trusted:
        done = cli("config", "trust", "--yes")
        assert done.code == 0, done.err
    return file


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_trusted_adapter_does_the_work_and_its_prefix_is_seen_by_the_agent(cli: Cli) -> None:
    project(cli)
    done = cli.child("run", "tool", "a house", "--format", "json")
    assert done.code == 0, done
    *events, result = lines(done.out)
    assert (result["type"], result["text"]) == ("Result", "you said ADAPTED a house")
    assert "MessageDelta" in {event["type"] for event in events}
    # It is stored as a direct run is.
    job = lines(cli("jobs", "result", result["job"], "--format", "json").out)[0]
    assert (job["state"], job["outcome"], job["prompt"]) == ("ended", "ok", "a house")
    assert job["text"] == "you said ADAPTED a house"
    shown = cli("sessions", "show", result["session_key"], "--format", "quiet")
    assert "you said ADAPTED a house" in shown.out


def test_warm_settings_change_nothing_and_start_no_broker(warm: Cli) -> None:
    project(warm)
    done = warm.child("run", "tool", "a house", "--format", "quiet")
    assert (done.code, done.out) == (0, "you said ADAPTED a house\n"), done
    assert list_brokers(find_paths(warm.env)) == []


def test_a_role_is_one_that_the_adapter_claims(cli: Cli) -> None:
    project(cli)
    done = cli("run", "tool", "a house", "--role", "review", "--format", "quiet")
    assert (done.code, done.out) == (0, "you said REVIEWED a house\n"), done
    done = cli("run", "tool", "a house", "--role", "debug")
    assert done.code == 2
    assert "does not claim the role 'debug'; it claims plan, review" in done.err


def test_model_mode_and_permissions_of_the_plan_count(cli: Cli) -> None:
    project(cli)
    words = ("--model", "large-preview", "--mode", "plan", "--format", "quiet")
    done = cli("run", "tool", "settings", *words)
    assert "model large-preview mode plan" in done.out, done
    assert cli("run", "tool", "write", "--approve-all").code == 0
    denied = cli("run", "tool", "write", "--approve-reads")
    assert denied.code == 5, denied


def test_an_adapter_that_prompts_in_a_mode_that_does_not_ask_is_stopped(cli: Cli) -> None:
    project(
        cli,
        ADAPTER.replace(
            "        prefix =", '        await session.set_mode("code")\n        prefix ='
        ),
    )
    with (cli.cwd / "dragoman.toml").open("a") as file:
        file.write('\n[peers.tool.enforcement]\nmodes = ["plan"]\n')
    assert cli("config", "trust", "--yes").code == 0
    done = cli("run", "tool", "wait", "--approve-reads")
    assert done.code == 2, done
    assert "its session is in the mode code, in which it does not ask" in done.err
    assert cli("run", "tool", "hello", "--approve-reads", "--allow-unenforced").code == 0
    assert cli("run", "tool", "hello", "--approve-all").code == 0
    assert cli.agents_left() == []


def test_an_untrusted_adapter_never_runs(cli: Cli, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hostile = f"import os\nos.makedirs({str(mark)!r}, exist_ok=True)\n" + ADAPTER
    file = project(cli, hostile, trusted=False)
    done = cli.child("run", "tool", "a house")
    assert done.code == 2, done
    assert "the project defines the peer tool and is not trusted" in done.err
    assert "`dragoman config trust`" in done.err
    assert "tool_adapter" not in cli.child("doctor").out
    assert not mark.exists()
    # The project is trusted, and then its adapter is changed.
    file.write_text(ADAPTER)
    assert cli("config", "trust", "--yes").code == 0
    file.write_text(hostile)
    done = cli.child("run", "tool", "a house")
    assert done.code == 2, done
    assert "the adapter tool_adapter.py of tool" in done.err
    assert f"{file} is not trusted" in done.err and "dragoman config trust" in done.err
    found = cli.child("doctor")
    assert found.code == 1 and f"{file} is not trusted" in found.out
    explained = cli.child("explain", "plan").out
    assert "its adapter cannot be used" in explained and f"{file} is not trusted" in explained
    assert "its adapter cannot be used" in cli.child("peers").out
    assert not mark.exists()


def test_a_failing_adapter_is_named_with_its_traceback_on_demand(cli: Cli) -> None:
    file = project(cli, FAILING)
    done = cli.child("run", "tool", "a house")
    assert done.code == 1, done
    assert f"{file}, the adapter of tool, failed: LookupError: no table for plan" in done.err
    assert "whose fault: the adapter" in done.err
    assert "Traceback" not in done.err
    verbose = cli.child("run", "tool", "a house", "--verbose")
    assert "Traceback" in verbose.err and 'tool_adapter.py", line' in verbose.err
    strict = cli.child("run", "tool", "a house", "--json-strict")
    assert (strict.code, strict.err) == (1, "")
    assert lines(strict.out)[-1]["error"]["error"] == "adapter_failed"


def test_an_adapter_that_fails_behind_its_session_leaves_a_job_that_failed(cli: Cli) -> None:
    broken = ADAPTER.replace("    return judge(", "    1 / 0\n    return judge(")
    project(cli, broken)
    done = cli("run", "tool", "a house", "--format", "json")
    assert done.code == 1, done
    result = lines(done.out)[-1]
    assert (result["type"], result["outcome"]) == ("Result", "failed")
    assert result["error"]["error"] == "adapter_failed"
    job = lines(cli("jobs", "result", result["job"], "--format", "json").out)[0]
    assert (job["outcome"], job["text"]) == ("failed", "you said ADAPTED a house")
    assert "ZeroDivisionError" in job["failure"]["message"]
    assert cli.agents_left() == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "there is no"),
        ("class Own(Exception): pass\nraise Own('no')\n", "cannot be loaded: Own: no"),
        ("raise SystemExit(0)\n", "cannot be loaded: SystemExit: 0"),
        ("x = 1\n", "the adapter lacks name"),
    ],
)
def test_an_adapter_that_does_not_load_is_named_by_run_and_doctor(
    cli: Cli, code: str | None, words: str
) -> None:
    project(cli, code)
    done = cli("run", "tool", "a house")
    assert done.code == 2, done
    assert "the adapter tool_adapter.py of tool" in done.err and words in done.err
    found = cli("doctor", "--format", "json")
    (finding,) = [line for line in lines(found.out) if line["check"] == "adapters"]
    assert (found.code, finding["state"]) == (1, "bad")
    assert words in finding["text"] and "tool_adapter.py" in finding["cure"]


def test_an_adapter_that_returns_something_else_is_named(cli: Cli) -> None:
    project(cli, ADAPTER.replace("return judge(result, launch.way.quirks)", "return result.text"))
    done = cli("run", "tool", "a house")
    assert done.code == 1 and "its dispatch returned str, not a Result" in done.err, done


def test_doctor_tells_that_an_adapter_loads(cli: Cli) -> None:
    file = project(cli)
    found = lines(cli("doctor", "--format", "json").out)
    (finding,) = [line for line in found if line["check"] == "adapters"]
    assert (finding["state"], finding["text"]) == ("ok", f"tool: {file} claims plan, review")


@pytest.mark.parametrize(
    ("option", "why"),
    [
        (("-s", "one"), "opens a new session for every prompt"),
        (("--no-wait",), "a broker cannot continue it"),
    ],
)
def test_options_that_need_a_session_of_ours_are_refused(
    warm: Cli, option: tuple[str, ...], why: str
) -> None:
    project(warm)
    done = warm("run", "tool", "a house", *option)
    assert done.code == 2, done
    assert "tool is run by its Python adapter" in done.err and why in done.err


def test_ctrl_c_cancels_the_adapter_and_ends_its_agent(cli: Cli) -> None:
    project(cli)
    with cli.terminal("run", "tool", "wait") as terminal:
        terminal.expect("waiting")
        terminal.type(CTRL_C)
        terminal.expect("cancelled")
        assert terminal.wait() == 130
    assert cli.agents_left() == []
    job = lines(cli("jobs", "list", "--format", "json").out)[0]
    assert (job["state"], job["outcome"]) == ("ended", "cancelled")


def test_a_timeout_ends_an_adapter_that_waits(cli: Cli) -> None:
    project(cli)
    done = cli("run", "tool", "wait", "--timeout", "1")
    assert done.code == 3, done
    assert cli.agents_left() == []


def test_a_role_of_a_peer_without_an_adapter_is_its_descriptors(cli: Cli) -> None:
    project(cli)
    file = cli.cwd / "dragoman.toml"
    text = re.sub(r"adapter = .*", 'role_prefixes = {plan = "/plan "}', file.read_text())
    file.write_text(text)
    assert cli("config", "trust", "--yes").code == 0
    done = cli("run", "tool", "a house", "--role", "plan", "--format", "quiet")
    assert (done.code, done.out) == (0, "you said /plan a house\n"), done
    assert cli("run", "tool", "a house", "--role", "debug").code == 2
    assert cli("run", "a house", "--role", "plan", "--", *AGENT).code == 2

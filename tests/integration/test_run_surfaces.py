"""A run behaves alike at every surface: real programs, real brokers, and something that is killed.

The surfaces are `dragoman run`, `dragoman delegate`, the tool `ask_peer` of `dragoman serve mcp`
and the chosen peer of a session of `dragoman serve acp`. What happens when two callers begin one
session name at once is compared on three of them: a delegation opens a session for each attempt and
has no session names. An editor's session has an id in place of a name, which two editors can share
(`test_serve_acp_faults`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import acp as sdk
import pytest

from dragoman.store.ledger import Ledger, ledger_path
from tests.aio import aio
from tests.integration.broker_places import until
from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.delegated_peers import add_peer, read_lines
from tests.integration.mcp_places import WAIT, describe, over_stdio
from tests.integration.test_serve_acp import Editor, editor

TIMEOUT = 10
"""Seconds of the time limit of a caller that is killed before it is over. On a busy machine, this
must be enough to start the caller and a broker, and to prompt the peer."""

STOPPED_TIMEOUT = 60.0
"""Seconds for a caller of a broker that is stopped: it is probed every ten seconds while something
waits for it, and has ten seconds to answer."""

HURRIED_TIMEOUT = 25.0
"""Seconds for a run with a time limit of one second, on a busy machine: less than the usual budgets
for the start of an agent, which a caller in a hurry does not wait for."""


pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        config = cli.home / "config_home"
        add_peer(config, cli.home, "alpha", "ok", ("review",))
        (config / "config.toml").write_text('enabled_peers = ["alpha"]\n')
        yield cli


def answers(cli: Cli, how: str) -> None:
    """Let the peer answer in another way from now on."""
    (cli.home / "alpha.how").write_text(how)


def brokers(cli: Cli) -> list[dict[str, Any]]:
    done = cli("broker", "list", "--format", "json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def jobs(cli: Cli) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in cli("jobs", "list", "--attempts", "--format", "json").out.splitlines()
    ]


async def started(cli: Cli, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *cli.argv(*words),
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def prompted(cli: Cli, number: int = 1) -> None:
    """Wait until the peer has got so many prompts."""
    await until(lambda: len(read_lines(cli.home / "alpha.prompts")) >= number)


Fault = Callable[[], Awaitable[None]]


async def by_run(cli: Cli, fault: Fault) -> dict[str, Any]:
    process = await started(cli, "run", "alpha", "x", "--format", "json")
    await fault()
    async with asyncio.timeout(STOPPED_TIMEOUT):
        out, err = await process.communicate()
    return told_by_run(out, err)


def told_by_run(out: bytes, err: bytes) -> dict[str, Any]:
    """The last line of `run --format json`: the end of the turn, or why there was none."""
    assert out, err
    done = json.loads(out.splitlines()[-1])
    assert done["type"] in ("Result", "Error"), err
    error = done if done["type"] == "Error" else done["error"]
    if error is None:
        return dict(done)
    failure = done.get("failure") or {"message": error["message"]}
    told = {"errorClass": error["error"], "mayHaveRun": error["may_have_run"], "failure": failure}
    return {**done, **told}


async def by_delegate(cli: Cli, fault: Fault) -> dict[str, Any]:
    process = await started(cli, "delegate", "review", "x", "--no-fallback", "--format", "json")
    await fault()
    async with asyncio.timeout(STOPPED_TIMEOUT):
        out, err = await process.communicate()
    done = json.loads(out.splitlines()[-1])
    assert done["type"] == "Delegation", err
    (attempt,) = done["attempts"]
    return dict(attempt)


async def by_mcp(cli: Cli, fault: Fault) -> dict[str, Any]:
    async with over_stdio(cli) as client:
        call = asyncio.get_running_loop().create_task(
            client.call_tool("ask_peer", {"peer": "alpha", "prompt": "x"})
        )
        await fault()
        async with asyncio.timeout(STOPPED_TIMEOUT):
            told = (await call).structured_content
    return dict(told)


async def by_acp(cli: Cli, fault: Fault) -> dict[str, Any]:
    async with editor(cli, "--peer", "alpha", timeout=STOPPED_TIMEOUT) as it:
        call = asyncio.get_running_loop().create_task(in_new_session(it, cli))
        await fault()
        async with asyncio.timeout(STOPPED_TIMEOUT):
            return await call


async def in_new_session(it: Editor, cli: Cli) -> dict[str, Any]:
    """The end of a turn as an editor gets it: a stop reason, or an error and what it says."""
    try:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        answer = await it.agent.prompt(session, [sdk.text_block("x")])
    except sdk.RequestError as error:
        return told_by(error)
    return {"outcome": answer.stop_reason}


def told_by(error: sdk.RequestError) -> dict[str, Any]:
    assert isinstance(error.data, dict)
    return {**error.data, "failure": {"message": str(error)}}


SURFACES = {"run": by_run, "delegate": by_delegate, "mcp": by_mcp, "acp": by_acp}


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_a_broker_that_is_killed_in_mid_turn_is_reported_as_the_broker(
    surface: str, warm: Cli
) -> None:
    async def kill_broker() -> None:
        await prompted(warm)
        (broker,) = await asyncio.to_thread(brokers, warm)
        os.kill(broker["pid"], signal.SIGKILL)

    answers(warm, "hang")
    told = await SURFACES[surface](warm, kill_broker)
    assert (told["outcome"], told["errorClass"]) == ("crashed", "broker_failed")
    assert "the broker was lost during the turn" in told["failure"]["message"]
    assert told["mayHaveRun"] is True
    state = warm.home / "state_home"
    if ledger_path(state).exists():
        with Ledger.open(ledger_path(state), read_only=True) as ledger:
            assert ledger.health("alpha").failures == 0, "the peer did not fail"
            assert ledger.posteriors() == {}
    assert len(read_lines(warm.home / "alpha.prompts")) == 1


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_an_agent_that_is_killed_in_mid_turn_is_reported_as_the_agent(
    surface: str, warm: Cli
) -> None:
    async def kill_agent() -> None:
        await prompted(warm)
        (broker,) = await asyncio.to_thread(brokers, warm)
        os.kill(broker["status"]["peerPid"], signal.SIGKILL)

    answers(warm, "hang")
    told = await SURFACES[surface](warm, kill_agent)
    assert (told["outcome"], told["errorClass"]) == ("crashed", "process_exited")
    assert "the process was killed by signal 9" in told["failure"]["message"]
    state = warm.home / "state_home"
    if surface == "delegate":
        with Ledger.open(ledger_path(state), read_only=True) as ledger:
            assert ledger.health("alpha").failures == 1


def kill_broker_while_opening(cli: Cli) -> Fault:
    """Kill the broker when its peer has been asked for a session. The next broker answers."""

    async def fault() -> None:
        await until(lambda: read_lines(cli.home / "alpha.openings") != [])
        (broker,) = await asyncio.to_thread(brokers, cli)
        answers(cli, "ok")
        os.kill(broker["pid"], signal.SIGKILL)

    answers(cli, "mute-session")
    return fault


@aio
async def test_a_delegation_tries_again_when_the_broker_is_killed_before_the_prompt(
    warm: Cli,
) -> None:
    fault = kill_broker_while_opening(warm)
    process = await started(warm, "delegate", "review", "x", "--no-fallback", "--format", "json")
    await fault()
    async with asyncio.timeout(WAIT):
        out, err = await process.communicate()
    first, second = json.loads(out.splitlines()[-1])["attempts"]
    assert (first["errorClass"], first["mayHaveRun"]) == ("broker_unavailable", False), err
    assert "the broker was lost before a prompt was sent" in first["failure"]["message"]
    assert second["outcome"] == "ok"
    with Ledger.open(ledger_path(warm.home / "state_home"), read_only=True) as ledger:
        assert ledger.health("alpha").failures == 0


@aio
async def test_a_tool_call_reports_a_broker_that_is_killed_before_the_prompt(warm: Cli) -> None:
    told = await by_mcp(warm, kill_broker_while_opening(warm))
    error = told["error"]
    assert (error["class"], error["mayHaveRun"], error["retryable"]) == (
        "broker_unavailable",
        False,
        True,
    )
    assert "the broker was lost before a prompt was sent" in error["message"]
    assert read_lines(warm.home / "alpha.prompts") == []


@aio
async def test_run_reports_a_broker_that_is_killed_before_the_prompt(warm: Cli) -> None:
    told = await by_run(warm, kill_broker_while_opening(warm))
    assert (told["errorClass"], told["mayHaveRun"]) == ("broker_unavailable", False)
    assert (told["exit_code"], told["retryable"]) == (1, True)
    assert "the broker was lost before a prompt was sent" in told["message"]
    assert read_lines(warm.home / "alpha.prompts") == []


@aio
async def test_an_editor_learns_that_the_broker_was_killed_before_the_prompt(warm: Cli) -> None:
    told = await by_acp(warm, kill_broker_while_opening(warm))
    assert (told["errorClass"], told["mayHaveRun"]) == ("broker_unavailable", False)
    assert "the broker was lost before a prompt was sent" in told["failure"]["message"]
    assert read_lines(warm.home / "alpha.prompts") == []


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_a_broker_that_is_stopped_by_a_signal_ends_the_call_by_its_budgets(
    surface: str, warm: Cli
) -> None:
    pids: list[int] = []

    async def stop_broker() -> None:
        await prompted(warm)
        (broker,) = await asyncio.to_thread(brokers, warm)
        pids.append(broker["pid"])
        os.kill(broker["pid"], signal.SIGSTOP)

    config = warm.home / "config_home" / "config.toml"
    config.write_text(f"{config.read_text()}\n[timeouts]\nfirst_event = 3\ncancel_grace = 0.5\n")
    answers(warm, "hang")
    try:
        told = await SURFACES[surface](warm, stop_broker)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert told["outcome"] == "timed_out"


async def nothing() -> None:
    """No fault."""


def limited(cli: Cli, *, tool_silence: float) -> None:
    """Set a limit for the agent's silence that is shorter than its tool calls."""
    config = cli.home / "config_home" / "config.toml"
    limits = f"[timeouts]\nsilence = 1\ntool_silence = {tool_silence}\ncancel_grace = 2\n"
    config.write_text(f"{config.read_text()}\n{limits}")


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_an_agent_may_be_silent_for_longer_while_its_tool_runs(
    surface: str, warm: Cli
) -> None:
    limited(warm, tool_silence=60)
    answers(warm, "long-tool")
    told = await SURFACES[surface](warm, nothing)
    assert told["outcome"] in ("ok", "end_turn"), told


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_a_tool_call_that_never_ends_is_bounded(surface: str, warm: Cli) -> None:
    limited(warm, tool_silence=2)
    answers(warm, "endless-tool")
    told = await SURFACES[surface](warm, nothing)
    assert told["outcome"] == "timed_out"
    assert "the agent sent nothing during a tool call for 2 s" in told["failure"]["message"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_turn_that_no_caller_follows_has_the_same_limits_for_tool_calls(
    ends: bool, warm: Cli
) -> None:
    limited(warm, tool_silence=60 if ends else 2)
    answers(warm, "long-tool" if ends else "endless-tool")
    job = warm("run", "alpha", "x", "--no-wait").out.strip()
    done = warm("jobs", "result", job, "--wait", "--format", "json")
    ended = json.loads(done.out)
    assert ended["outcome"] == ("ok" if ends else "timed_out"), ended
    if not ends:
        assert "nothing during a tool call for 2 s" in ended["failure"]["message"]


@aio
async def test_a_model_that_the_peer_silently_does_not_take_is_not_prompted(warm: Cli) -> None:
    config = warm.home / "config_home" / "config.toml"
    config.write_text(f'{config.read_text()}\n[peer.alpha]\nmodel = "large"\n')
    answers(warm, "keeps-model")
    delegated = await by_delegate(warm, nothing)
    assert delegated["mayHaveRun"] is False
    told = [delegated["failure"]["message"]]
    for words in ((), ("-s", "talk"), ("--no-wait",), ("--no-wait", "-s", "talk")):
        done = warm("run", "alpha", "x", "--json-strict", *words)
        assert done.code == 1, done
        told.append(told_by_run(done.out.encode(), b"")["message"])
    for words in (("new",), ("new", "-s", "talk"), ("ensure", "-s", "talk")):
        done = warm("sessions", words[0], "alpha", *words[1:])
        assert done.code == 1, done
        told.append("alpha was" + done.err.partition("alpha was")[2].partition("\n")[0])
        assert "whose fault: the agent" in done.err
        assert "choose another model, or omit it: then alpha decides" in done.err
    async with over_stdio(warm) as client:
        for session in ("", "talk"):
            wanted = {"peer": "alpha", "prompt": "x", "session": session}
            asked = (await client.call_tool("ask_peer", wanted)).structured_content
            told.append(asked["error"]["message"])
    edited = await by_acp(warm, nothing)
    assert (edited["errorClass"], edited["mayHaveRun"]) == ("protocol_mismatch", False)
    message, _, advice = edited["failure"]["message"].partition("; ")
    assert advice == "choose another model, or omit it: then alpha decides"
    told.append(message)
    assert set(told) == {"alpha was asked for the model 'large' but uses 'small'"}
    assert read_lines(warm.home / "alpha.prompts") == []
    listed = warm("sessions", "list", "--closed", "--format", "json")
    left = [json.loads(line)["peer"] for line in listed.out.splitlines()]
    assert left == ["dragoman"], "what was begun for this is discarded, but for the editor's own"


@aio
async def test_an_agent_that_dies_before_its_prompt_has_not_run_at_any_surface(warm: Cli) -> None:
    answers(warm, "dead-session")
    for words in ((), ("--cold",)):
        done = warm("run", "alpha", "x", *words)
        assert done.code == 1, done
        assert "may already be done" not in done.err, done.err
    async with over_stdio(warm) as client:
        asked = (
            await client.call_tool("ask_peer", {"peer": "alpha", "prompt": "x"})
        ).structured_content
    assert asked["error"]["mayHaveRun"] is False, asked
    assert asked["outcome"] == "not_asked", asked
    delegated = await by_delegate(warm, nothing)
    assert delegated["mayHaveRun"] is False
    edited = await by_acp(warm, nothing)
    assert edited["mayHaveRun"] is False
    assert read_lines(warm.home / "alpha.prompts") == []


def test_what_dragoman_writes_in_the_workspace_is_not_a_change_of_the_peer(warm: Cli) -> None:
    config = warm.home / "config_home"
    add_peer(config, warm.home, "beta", "error", ("review",))
    (config / "config.toml").write_text('enabled_peers = ["alpha", "beta"]\n')
    warm.extra["DRAGOMAN_STATE_HOME"] = str(warm.cwd / ".state")
    done = warm("run", "alpha", "x", "--deny-all", "--json-strict")
    result = json.loads(done.out.splitlines()[-1])
    assert (result["outcome"], result["violations"]) == ("ok", [])
    answers(warm, "error")
    done = warm("delegate", "review", "x")
    assert "no other peer was tried" not in done.err, done.err
    assert len(read_lines(warm.home / "alpha.prompts")) >= 2
    assert len(read_lines(warm.home / "beta.prompts")) >= 1


def test_an_agent_that_never_answers_is_a_timeout_with_a_broker_and_without(warm: Cli) -> None:
    config = warm.home / "config_home" / "config.toml"
    config.write_text(f"{config.read_text()}\n[timeouts]\ninitialize = 1\n")
    answers(warm, "mute")
    told = []
    for words in ((), ("--cold",)):
        done = warm("run", "alpha", "x", "--json-strict", *words)
        assert done.code == 3, done
        told.append(json.loads(done.out.splitlines()[-1]))
    assert told[0] == told[1]


@aio
async def test_a_time_limit_ends_a_run_whose_agent_does_not_answer_the_handshake(warm: Cli) -> None:
    answers(warm, "mute")
    process = await started(warm, "run", "alpha", "x", "--timeout", "1", "--format", "json")
    async with asyncio.timeout(HURRIED_TIMEOUT):
        _, err = await process.communicate()
    assert process.returncode == 3, err


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_a_mode_that_the_peer_silently_does_not_take_is_not_prompted(
    surface: str, warm: Cli
) -> None:
    config = warm.home / "config_home" / "config.toml"
    config.write_text(f'{config.read_text()}\n[peer.alpha]\nmode = "large"\n')
    answers(warm, "keeps-mode")
    told = await SURFACES[surface](warm, nothing)
    failure = told.get("failure") or told["error"]
    assert "alpha was asked for the mode 'large' but uses 'small'" in failure["message"]
    assert read_lines(warm.home / "alpha.prompts") == []
    listed = warm("sessions", "list", "--closed", "--format", "json")
    assert (listed.code, listed.out) == (0, ""), "what was begun for this is discarded"


# -- a caller that ends in mid-turn


def request(id: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


async def prompted_by_editor(cli: Cli, process: asyncio.subprocess.Process) -> None:
    """Send a prompt as an editor does, and do not wait for the answer."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(request(1, "initialize", protocolVersion=1, clientCapabilities={}) + b"\n")
    process.stdin.write(request(2, "session/new", cwd=str(cli.cwd), mcpServers=[]) + b"\n")
    session = ""
    while not session:
        told = json.loads(await process.stdout.readline())
        session = told["result"]["sessionId"] if told.get("id") == 2 else ""
    blocks = [{"type": "text", "text": "y"}]
    process.stdin.write(request(3, "session/prompt", sessionId=session, prompt=blocks) + b"\n")


async def prompted_by_host(cli: Cli, process: asyncio.subprocess.Process) -> None:
    """Call a tool as an MCP host does, and do not wait for the answer."""
    assert process.stdin is not None and process.stdout is not None
    about: dict[str, Any] = {"clientInfo": {"name": "host", "version": "1"}, "capabilities": {}}
    begin = request(1, "initialize", protocolVersion="2025-06-18", **about)
    process.stdin.write(begin + b"\n")
    while json.loads(await process.stdout.readline()).get("id") != 1:
        pass
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    process.stdin.write(json.dumps(ready).encode() + b"\n")
    asked = {"peer": "alpha", "prompt": "y", "timeout": TIMEOUT}
    call = request(2, "tools/call", name="ask_peer", arguments=asked)
    process.stdin.write(call + b"\n")


LIMITED = {
    "run": ("run", "alpha", "y", "--timeout", str(TIMEOUT)),
    "delegate": ("delegate", "review", "y", "--timeout", str(TIMEOUT)),
    "mcp": ("serve", "mcp"),
    "acp": ("serve", "acp", "--peer", "alpha"),
}
"""A command of each surface that prompts a peer under a time limit, at once or when it is asked to.
An editor cannot set one: for it the settings do."""


@asynccontextmanager
async def calling(cli: Cli, surface: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has prompted a hanging peer under a time limit. It is killed at the end."""
    before = len(read_lines(cli.home / "alpha.prompts"))
    answers(cli, "hang")
    if surface == "acp":
        config = cli.home / "config_home" / "config.toml"
        config.write_text(f"{config.read_text()}\n[timeouts]\ntotal = {TIMEOUT}\n")
    process = await asyncio.create_subprocess_exec(
        *cli.argv(*LIMITED[surface]),
        cwd=cli.cwd,
        env=cli.env,
        # The prompt of a command is in its words: its input is empty.
        stdin=subprocess.PIPE if surface in ("mcp", "acp") else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WAIT):
            if surface == "acp":
                await prompted_by_editor(cli, process)
            elif surface == "mcp":
                await prompted_by_host(cli, process)
            await prompted(cli, before + 1)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def ended_as(cli: Cli, outcome: str) -> str:
    """Wait until a job of the prompt is stored with this outcome. Returns its id."""

    def ended() -> list[str]:
        # A delegation has a job of its own beside that of its turn.
        mine = [job for job in jobs(cli) if job["prompt"] == "y"]
        return [job["job"] for job in mine if job["outcome"] == outcome]

    async with asyncio.timeout(WAIT):
        while not (found := await asyncio.to_thread(ended)):
            pass
    return found[0]


@pytest.mark.parametrize("surface", LIMITED)
@aio
async def test_a_turn_keeps_its_budgets_when_its_caller_is_killed(surface: str, warm: Cli) -> None:
    # The broker is there before, with the budgets of a caller without a time limit.
    assert warm("run", "alpha", "x").code == 0
    async with calling(warm, surface) as process:
        process.kill()
        await process.wait()
    found = await asyncio.to_thread(brokers, warm)
    sessions = [each for broker in found for each in broker["status"]["sessions"]]
    assert len([each for each in sessions if each["running"]]) == 1
    await ended_as(warm, "timed_out")


@pytest.mark.parametrize("surface", LIMITED)
@aio
async def test_the_answer_to_a_caller_that_was_killed_is_stored(surface: str, warm: Cli) -> None:
    async with calling(warm, surface) as process:
        process.kill()
        await process.wait()
    answers(warm, "say-at-cancel")
    job = await ended_as(warm, "timed_out")
    stored = await asyncio.to_thread(warm, "jobs", "result", job)
    assert "alpha did as much as it could" in stored.out, stored


def interrupt(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGINT)


def terminate(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGTERM)


def close_input(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()


def cancel_call(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    process.stdin.write(json.dumps(notice).encode() + b"\n")


ORDERLY_ENDS = [
    *((surface, end) for surface in LIMITED for end in (interrupt, terminate)),
    ("acp", close_input),
    ("mcp", cancel_call),
]


@pytest.mark.parametrize("brokered", ["1", "0"], ids=["broker", "direct"])
@pytest.mark.parametrize(
    ("surface", "end"), ORDERLY_ENDS, ids=[f"{on}-{end.__name__}" for on, end in ORDERLY_ENDS]
)
@aio
async def test_a_turn_is_cancelled_when_its_caller_ends_in_order(
    surface: str, end: Callable[[asyncio.subprocess.Process], None], brokered: str, warm: Cli
) -> None:
    warm.extra["DRAGOMAN_WARM"] = brokered
    async with calling(warm, surface) as process:
        end(process)
        await ended_as(warm, "cancelled")
        if end is not cancel_call:
            async with asyncio.timeout(WAIT):
                await process.wait()


@pytest.mark.parametrize("surface", LIMITED)
@aio
async def test_an_agent_without_a_broker_ends_with_its_caller(surface: str, warm: Cli) -> None:
    warm.extra["DRAGOMAN_WARM"] = "0"
    async with calling(warm, surface) as process:
        assert warm.agents_left() != []
        process.kill()
        await process.wait()
    async with asyncio.timeout(WAIT):
        await until(lambda: warm.agents_left() == [])


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_a_budget_that_runs_out_ends_the_turn_as_timed_out(surface: str, warm: Cli) -> None:
    limit_first_event(warm, 1)
    answers(warm, "hang")
    told = await SURFACES[surface](warm, nothing)
    assert told["outcome"] == "timed_out"
    assert "1 s" in str(told)


def limit_first_event(cli: Cli, seconds: float) -> None:
    """Limit the time until the first event of a turn, in the settings."""
    config = cli.home / "config_home" / "config.toml"
    config.write_text(f"{config.read_text()}\n[timeouts]\nfirst_event = {seconds}\n")


@aio
async def test_a_turn_that_is_left_to_its_broker_keeps_its_budgets(warm: Cli) -> None:
    assert warm("run", "alpha", "x").code == 0
    answers(warm, "hang")
    job = warm("run", "alpha", "y", "--no-wait", "--timeout", str(TIMEOUT)).out.strip()
    done = await asyncio.to_thread(warm, "jobs", "result", job, "--wait", "--format", "json")
    assert json.loads(done.out)["outcome"] == "timed_out", done


@pytest.mark.parametrize("words", [(), ("--no-wait",)], ids=["wait", "no-wait"])
@aio
async def test_two_runs_that_begin_one_session_name_get_one_session(
    words: tuple[str, ...], warm: Cli
) -> None:
    describe(warm, "tester", "review")
    talk = ("run", "tester", "-s", "talk", "--format", "json", *words)
    both = [await started(warm, *talk, f"hello {number}") for number in (1, 2)]
    async with asyncio.timeout(WAIT):
        told = await asyncio.gather(*(each.communicate() for each in both))
    assert [each.returncode for each in both] == [0, 0], told
    lines = [json.loads(line) for out, _ in told for line in out.splitlines()]
    assert len({line["session_key"] for line in lines if "session_key" in line}) == 1
    listed = warm("sessions", "list", "--format", "json").out.splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["talk"]


@aio
async def test_runs_without_a_broker_in_one_session_at_once_are_stored_or_refused(
    warm: Cli,
) -> None:
    talk = ("run", "-s", "talk", "--cold", "--format", "json")
    agent = ("--", *warm.agent, "resumes")
    each = [await started(warm, *talk, f"hello {number}", *agent) for number in range(4)]
    async with asyncio.timeout(WAIT):
        told = [(await one.communicate(), one.returncode) for one in each]
    for (out, err), code in told:
        refused = json.loads(out.splitlines()[-1]).get("error") == "turn_in_progress"
        assert refused or code == 0, err
        assert b"not stored" not in err
    done = sum(code == 0 for _, code in told)
    assert done >= 1
    assert [job["outcome"] for job in jobs(warm)] == ["ok"] * done
    listed = warm("sessions", "list", "--format", "json").out.splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["talk"]


@pytest.mark.parametrize("servers", [1, 2])
@aio
async def test_two_tool_calls_that_begin_one_session_name_get_one_session(
    servers: int, warm: Cli
) -> None:
    describe(warm, "tester", "review")
    talk = {"peer": "tester", "session": "talk"}
    async with over_stdio(warm) as one, over_stdio(warm) as other:
        clients = (one, one if servers == 1 else other)
        told = await asyncio.gather(
            *(
                client.call_tool("ask_peer", {**talk, "prompt": f"hello {number}"})
                for number, client in enumerate(clients)
            )
        )
    assert all(each.structured_content["ok"] for each in told), told
    first, second = (each.structured_content["session"] for each in told)
    assert first == second
    listed = warm("sessions", "list", "--format", "json").out.splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["talk"]


# -- a broker that is stopped by a signal, at every stage


@contextmanager
def stopped_broker(cli: Cli) -> Iterator[Fault]:
    """Stops the broker when it is called. At the end it goes on, if it is still there."""
    pids: list[int] = []

    async def stop() -> None:
        (broker,) = await asyncio.to_thread(brokers, cli)
        pids.append(broker["pid"])
        os.kill(broker["pid"], signal.SIGSTOP)

    try:
        yield stop
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("words", [(), ("--no-wait",)], ids=["wait", "no-wait"])
@aio
async def test_run_replaces_a_broker_that_was_stopped_before(
    words: tuple[str, ...], warm: Cli
) -> None:
    assert warm("run", "alpha", "x").code == 0
    (first,) = await asyncio.to_thread(brokers, warm)
    with stopped_broker(warm) as stop:
        await stop()
        process = await started(warm, "run", "alpha", "y", *words)
        async with asyncio.timeout(STOPPED_TIMEOUT):
            out, err = await process.communicate()
    assert process.returncode == 0, err
    await prompted(warm, 2)
    (second,) = await asyncio.to_thread(brokers, warm)
    assert first["pid"] != second["pid"]


@pytest.mark.parametrize("surface", ["delegate", "mcp", "acp"])
@aio
async def test_a_call_replaces_a_broker_that_was_stopped_before(surface: str, warm: Cli) -> None:
    async def nothing() -> None: ...

    good = ("ok", "end_turn")
    assert (await SURFACES[surface](warm, nothing))["outcome"] in good
    (first,) = await asyncio.to_thread(brokers, warm)
    with stopped_broker(warm) as stop:
        await stop()
        assert (await SURFACES[surface](warm, nothing))["outcome"] in good
    (second,) = await asyncio.to_thread(brokers, warm)
    assert first["pid"] != second["pid"]


@aio
async def test_a_delegation_tries_again_when_its_broker_is_stopped_while_the_session_opens(
    warm: Cli,
) -> None:
    answers(warm, "mute-session")
    words = ("delegate", "review", "x", "--no-fallback", "--format", "json")
    process = await started(warm, *words)
    with stopped_broker(warm) as stop:
        await until(lambda: read_lines(warm.home / "alpha.openings") != [])
        answers(warm, "")
        await stop()
        async with asyncio.timeout(STOPPED_TIMEOUT):
            out, err = await process.communicate()
    done = json.loads(out.splitlines()[-1])
    assert (done["type"], done["ok"]) == ("Delegation", True), err
    assert len(read_lines(warm.home / "alpha.prompts")) == 1


@pytest.mark.parametrize("words", [(), ("--no-wait",)], ids=["wait", "no-wait"])
@aio
async def test_run_ends_when_its_broker_is_stopped_while_the_session_opens(
    words: tuple[str, ...], warm: Cli
) -> None:
    answers(warm, "mute-session")
    process = await started(warm, "run", "alpha", "x", "--format", "json", *words)
    with stopped_broker(warm) as stop:
        await until(lambda: read_lines(warm.home / "alpha.openings") != [])
        await stop()
        async with asyncio.timeout(STOPPED_TIMEOUT):
            told = told_by_run(*await process.communicate())
    assert (told["errorClass"], told["mayHaveRun"]) == ("broker_unavailable", False)
    assert "the broker was lost before a prompt was sent" in told["message"]
    assert "does not answer within 10 s" in told["message"]


@pytest.mark.parametrize("surface", ["mcp", "acp"])
@aio
async def test_a_server_reports_a_broker_that_is_stopped_while_the_session_opens(
    surface: str, warm: Cli
) -> None:
    answers(warm, "mute-session")
    with stopped_broker(warm) as stop:

        async def fault() -> None:
            await until(lambda: read_lines(warm.home / "alpha.openings") != [])
            await stop()

        told = await SURFACES[surface](warm, fault)
    error = told.get("error", {})
    assert told.get("errorClass", error.get("class")) == "broker_unavailable"
    assert told.get("mayHaveRun", error.get("mayHaveRun")) is False
    message = error.get("message") or told["failure"]["message"]
    assert "the broker was lost before a prompt was sent" in message
    assert "does not answer within 10 s" in message


@pytest.mark.parametrize("surface", SURFACES)
@aio
async def test_the_call_ends_when_its_broker_is_stopped_in_mid_turn(
    surface: str, warm: Cli
) -> None:
    answers(warm, "hang")
    with stopped_broker(warm) as stop:

        async def fault() -> None:
            await prompted(warm)
            await stop()

        told = await SURFACES[surface](warm, fault)
    assert (told["errorClass"], told["mayHaveRun"]) == ("broker_failed", True)
    assert "does not answer within 10 s" in told["failure"]["message"]

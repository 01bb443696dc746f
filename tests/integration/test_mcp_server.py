"""`dragoman serve mcp` with the official client, over both transports, down to real peers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
import pytest
from pydantic import FileUrl

from tests.aio import aio
from tests.integration.broker_places import until
from tests.integration.cli_shell import Cli, cli_in, warm_cli
from tests.integration.delegated_peers import PROGRAM
from tests.integration.mcp_places import (
    MODES,
    WAIT,
    Heard,
    describe,
    listening,
    over_http,
    over_stdio,
    settings,
    text_of,
)

HELLO = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"by hand","version":"1"}}}\n'
)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = cli_in(tmp_path)
    describe(cli, "tester", "review")
    return cli


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        describe(cli, "tester", "review")
        yield cli


def failing(cli: Cli, name: str, how: str) -> None:
    describe(
        cli,
        name,
        "review",
        command=(sys.executable, str(PROGRAM), name, str(cli.home), how),
    )


# -- stdio


@pytest.mark.parametrize("mode", MODES)
@aio
async def test_a_host_asks_a_peer_by_name_and_hears_how_it_goes(mode: str, cli: Cli) -> None:
    heard = Heard()
    async with over_stdio(cli, mode=mode) as client:
        listed = await client.list_tools()
        assert len(listed.tools) == 8
        result = await client.call_tool(
            "ask_peer", {"peer": "tester", "prompt": "hello"}, progress_callback=heard
        )
        peers = await client.call_tool("list_peers", {})
    assert text_of(result).startswith("you said hello\n\n[dragoman: tester answered]")
    told = result.structured_content
    assert (told["ok"], told["outcome"], told["peer"]) == (True, "ok", "tester")
    assert "tester is answering" in heard.lines[-1]
    assert "tester: installed; roles: review" in text_of(peers)
    done = await asyncio.to_thread(cli, "jobs", "result", told["job"])
    assert (done.code, done.out) == (0, "you said hello\n")
    # The client kills a server that does not end within two seconds.
    cli.wait_for_agents()


@aio
async def test_work_falls_back_to_the_next_peer_and_every_attempt_is_reported(cli: Cli) -> None:
    failing(cli, "broken", "crash")
    settings(cli, 'enabled_peers = ["broken", "tester"]\n')
    async with over_stdio(cli) as client:
        result = await client.call_tool("delegate", {"role": "review", "prompt": "look"})
        alone = await client.call_tool(
            "delegate",
            {"role": "review", "prompt": "look", "peer": "broken", "fallback": "none"},
        )
    told = result.structured_content
    assert (told["ok"], told["answered"]) == (True, "tester")
    assert [one["peer"] for one in told["attempts"]] == ["broken", "tester"]
    # `explain` lists the peers that were passed over.
    assert told["decision"]["candidates"] and "passed_over" not in told["decision"]
    assert text_of(result).startswith("you said look")
    assert "1. broken: crashed" in text_of(result)
    assert alone.is_error
    assert text_of(alone).startswith("FAILED: the delegation failed.")
    assert "Do not answer in the peer's place" in text_of(alone)


@aio
async def test_a_peer_may_do_what_the_policy_allows(cli: Cli) -> None:
    asked = {"peer": "tester", "prompt": "write"}
    async with over_stdio(cli) as client:
        denied = await client.call_tool("ask_peer", asked)
    async with over_stdio(cli, "--approve-all") as client:
        allowed = await client.call_tool("ask_peer", asked)
    assert denied.is_error
    assert denied.structured_content["outcome"] == "denied"
    assert "refused: Write notes.md" in text_of(denied)
    assert text_of(allowed).startswith("written")


@pytest.mark.parametrize("broker", ["1", "0"])
@pytest.mark.parametrize("mode", MODES)
@aio
async def test_a_peer_that_talks_on_after_a_denial_was_denied_and_no_other_is_asked(
    mode: str, broker: str, warm: Cli
) -> None:
    warm.extra["DRAGOMAN_WARM"] = broker
    failing(warm, "asking", "ask")
    settings(warm, 'enabled_peers = ["asking", "tester"]\n')
    work = {"prompt": "write it", "peer": "asking"}
    async with asyncio.timeout(WAIT), over_stdio(warm, mode=mode) as client:
        asked = await client.call_tool("ask_peer", work)
        delegated = await client.call_tool("delegate", {"role": "review", "prompt": "write it"})
        started = await client.call_tool("start_job", work)
        job = {"job": started.structured_content["job"], "wait": WAIT}
        later = await client.call_tool("job_result", job)
    for answer in (asked, delegated, later):
        assert answer.is_error
        told = answer.structured_content
        assert (told["ok"], told["outcome"]) == (False, "denied")
        assert told["text"] == "it is not needed, all is well"
        assert text_of(answer).startswith("FAILED")
    assert [one["peer"] for one in delegated.structured_content["attempts"]] == ["asking"]
    for answer in (asked, delegated):
        assert "refused: Write" in text_of(answer)
    assert not (warm.cwd / "done.txt").exists()


@aio
async def test_a_client_cannot_lift_the_policy_of_its_delegator(cli: Cli) -> None:
    settings(cli, "max_depth = 2\n")
    cli.extra["DRAGOMAN_DEPTH"] = "1"
    async with over_stdio(cli, "--approve-all") as client:
        result = await client.call_tool("ask_peer", {"peer": "tester", "prompt": "write"})
    # It is delegated work, and nobody said what that may do: nothing, then.
    assert result.structured_content["outcome"] == "denied"


@pytest.mark.parametrize("mode", MODES)
@aio
async def test_a_call_that_is_cancelled_is_cancelled_in_the_agent(mode: str, cli: Cli) -> None:
    heard = Heard()
    async with over_stdio(cli, mode=mode) as client:
        call = asyncio.get_running_loop().create_task(
            client.call_tool(
                "ask_peer", {"peer": "tester", "prompt": "wait"}, progress_callback=heard
            )
        )
        await heard.line_with("is answering")
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        again = await client.call_tool("ask_peer", {"peer": "tester", "prompt": "hello"})
        assert text_of(again).startswith("you said hello")
    listed = (await asyncio.to_thread(cli, "jobs", "list", "--format", "json")).out
    assert '"outcome":"cancelled"' in listed
    # The client kills a server that does not end within two seconds.
    cli.wait_for_agents()


@aio
async def test_delegated_work_is_not_delegated_again(cli: Cli) -> None:
    cli.extra["DRAGOMAN_DEPTH"] = "1"
    async with over_stdio(cli) as client:
        asked = await client.call_tool("ask_peer", {"peer": "tester", "prompt": "hello"})
        delegated = await client.call_tool("delegate", {"role": "review", "prompt": "hello"})
    for result in (asked, delegated):
        assert result.is_error
        assert "this is delegated work already, at depth 1" in text_of(result)
        assert "do this part yourself, as your own work" in text_of(result)


@aio
async def test_a_peer_receives_its_delegation_depth(cli: Cli) -> None:
    async with over_stdio(cli) as client:
        result = await client.call_tool(
            "ask_peer", {"peer": "tester", "prompt": "env DRAGOMAN_DEPTH"}
        )
    assert text_of(result).startswith("DRAGOMAN_DEPTH=1\n")


@pytest.mark.parametrize("mode", MODES)
@aio
async def test_roots_of_the_client_bound_the_workspace(mode: str, cli: Cli) -> None:
    inside = cli.cwd / "inside"
    inside.mkdir()

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(inside.as_uri()))])

    asked = {"peer": "tester", "prompt": "settings"}
    async with over_stdio(cli, mode=mode, list_roots_callback=roots) as client:
        taken = await client.call_tool("ask_peer", asked)
        outside = await client.call_tool("ask_peer", {**asked, "workspace": str(cli.cwd)})
    assert "cwd inside" in text_of(taken)
    assert outside.is_error
    assert "outside the roots of this client" in text_of(outside)


# -- its end


# Here its signals and its end are what is tested.
Process = subprocess.Popen  # noqa: TID251


def served(cli: Cli, *words: str) -> Process[bytes]:
    return Process(
        cli.argv("serve", "mcp", *words),
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def call(tool: str, arguments: str) -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"%s","arguments":%s,'
        b'"_meta":{"progressToken":"p"}}}\n' % (tool.encode(), arguments.encode())
    )


def begun(process: Process[bytes]) -> None:
    """Read until a peer is answering."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(HELLO)
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    process.stdin.write(call("ask_peer", '{"peer": "tester", "prompt": "wait"}'))
    process.stdin.flush()
    guard = threading.Timer(WAIT, process.kill)
    guard.start()
    try:
        for line in process.stdout:
            assert line.startswith(b"{"), line
            if b"is answering" in line:
                return
    finally:
        guard.cancel()
        guard.join()
    raise AssertionError("nobody answers")


def test_what_was_asked_before_the_end_of_the_input_is_answered(cli: Cli) -> None:
    asked = HELLO + call("ask_peer", '{"peer": "tester", "prompt": "hello"}')
    with served(cli) as process:
        # Without the end of the last line, as by hand.
        out, err = process.communicate(asked.rstrip(), timeout=WAIT)
    assert (process.returncode, err) == (0, b"")
    answers = {told["id"]: told for line in out.splitlines() if "id" in (told := json.loads(line))}
    assert set(answers) == {1, 2}
    assert answers[2]["result"]["content"][0]["text"].startswith("you said hello\n")
    assert cli.agents_left() == []


@pytest.mark.parametrize("open_input", [True, False], ids=["open", "closed"])
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_a_signal_ends_everything(
    how: signal.Signals, code: int, open_input: bool, cli: Cli
) -> None:
    with served(cli) as process:
        begun(process)
        assert cli.agents_left() != []
        if not open_input:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        process.send_signal(how)
        out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (code, b"")
    assert all(line.startswith(b"{") for line in out.splitlines())
    assert cli.agents_left() == []


def test_a_server_whose_host_is_gone_ends(cli: Cli) -> None:
    with served(cli) as process:
        begun(process)
        assert process.stdout is not None and process.stdin is not None
        process.stdout.close()
        process.stdin.close()
        assert process.wait(WAIT) == 0
    assert cli.agents_left() == []


# -- with brokers


@aio
async def test_a_session_is_continued_and_a_job_outlives_the_server(warm: Cli) -> None:
    async with over_stdio(warm) as client:
        talk = {"peer": "tester", "session": "talk"}
        first = await client.call_tool("ask_peer", {**talk, "prompt": "hello"})
        second = await client.call_tool("ask_peer", {**talk, "prompt": "again"})
        assert first.structured_content["session"] == second.structured_content["session"]
        assert second.structured_content["context"] == "live"
        started = await client.call_tool("start_job", {"peer": "tester", "prompt": "wait"})
        job = started.structured_content["job"]
        # Not before the prompt has arrived there: what nobody has heard of cannot go on.
        await until_running(client, job)
    async with over_stdio(warm) as client:
        status = await client.call_tool("job_status", {"job": job})
        assert status.structured_content["outcome"] == "running"
        cancelled = await client.call_tool("cancel_job", {"job": job})
        assert cancelled.structured_content["cancelled"] is True
        result = await client.call_tool("job_result", {"job": job, "wait": WAIT})
        assert result.structured_content["outcome"] == "cancelled"
        assert "waiting" in text_of(result)


@aio
async def test_the_time_limit_of_a_caller_counts_here_and_in_the_broker(warm: Cli) -> None:
    wish = {"peer": "tester", "prompt": "wait"}
    async with over_stdio(warm) as client:
        # The start of the peer counts too, so it is started first.
        await client.call_tool("ask_peer", {**wish, "prompt": "hello"})
        asked = await client.call_tool("ask_peer", {**wish, "timeout": 3})
        assert asked.structured_content["outcome"] == "timed_out"
        started = await client.call_tool("start_job", {**wish, "timeout": 3})
        job = started.structured_content["job"]
        await until_running(client, job)
    async with over_stdio(warm) as client:
        result = await client.call_tool("job_result", {"job": job, "wait": WAIT})
        assert result.structured_content["outcome"] == "timed_out"


@aio
async def test_a_peer_that_does_not_start_within_the_time_limit_has_timed_out(warm: Cli) -> None:
    describe(warm, "mute", command=(sys.executable, "-c", "import time; time.sleep(600)"))
    async with over_stdio(warm) as client:
        asked = await client.call_tool("ask_peer", {"peer": "mute", "prompt": "hi", "timeout": 1})
    assert asked.is_error
    assert asked.structured_content["outcome"] == "timed_out"
    assert asked.structured_content["error"]["mayHaveRun"] is False
    assert "No peer was prompted" in text_of(asked)


async def until_running(client: Any, job: str) -> None:
    async with asyncio.timeout(WAIT):
        while True:
            status = await client.call_tool("job_status", {"job": job})
            if "is answering" in text_of(status):
                return


# -- HTTP


@pytest.mark.parametrize("mode", MODES)
@aio
async def test_clients_over_http_do_the_same(mode: str, cli: Cli) -> None:
    heard = Heard()
    async with listening(cli) as address, over_http(address, mode=mode) as client:
        asked = await client.call_tool(
            "ask_peer", {"peer": "tester", "prompt": "hello"}, progress_callback=heard
        )
        assert text_of(asked).startswith("you said hello")
        assert "tester is answering" in heard.lines[-1]
        async with over_http(address, mode=mode) as other:
            both = await asyncio.gather(
                *(
                    one.call_tool("ask_peer", {"peer": "tester", "prompt": f"from {number}"})
                    for number, one in enumerate((client, other))
                )
            )
        said = [text_of(result).splitlines()[0] for result in both]
        assert said == ["you said from 0", "you said from 1"]
        job = {"job": asked.structured_content["job"]}
        assert text_of(await client.call_tool("job_result", job)).startswith("you said hello")
    assert cli.agents_left() == []


@aio
async def test_the_http_server_accepts_no_other_client(cli: Cli) -> None:
    good = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with listening(cli) as address, httpx2.AsyncClient(headers=good, timeout=WAIT) as http:
        token = {"Authorization": f"Bearer {address.token}"}

        async def status(headers: dict[str, str], content: bytes = HELLO) -> int:
            answer = await http.post(address.url, headers=headers, content=content)
            return answer.status_code

        assert await status(token) == 200
        assert await status({}) == 401
        assert await status({"Authorization": "Bearer wrong"}) == 401
        assert await status({**token, "Origin": "https://evil.example"}) == 403
        assert await status({**token, "Host": "evil.example"}) == 421
        assert await status(token, b" " * (4 * 1024 * 1024 + 1)) == 413
        assert (await http.get(address.url)).status_code == 401
        mode = os.stat(cli.home / "state_home" / "mcp-token").st_mode
        assert mode & 0o077 == 0


@aio
async def test_idle_connections_of_others_do_not_keep_the_owner_out(cli: Cli) -> None:
    good = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with listening(cli) as address:
        parts = urlsplit(address.url)
        headers = {**good, "Authorization": f"Bearer {address.token}"}
        idle: list[asyncio.StreamWriter] = []
        try:
            for _ in range(300):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port)
                idle.append(writer)
                if len(idle) in (1, 65, 300):
                    async with httpx2.AsyncClient(headers=headers, timeout=WAIT) as http:
                        answer = await http.post(address.url, content=HELLO)
                        assert answer.status_code == 200, len(idle)
        finally:
            for writer in idle:
                writer.close()


@aio
async def test_one_session_too_many_is_refused_until_another_ends(cli: Cli) -> None:
    good = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with listening(cli, quiet=False) as address:
        headers = {**good, "Authorization": f"Bearer {address.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=WAIT) as http:
            begun = [await http.post(address.url, content=HELLO) for _ in range(64)]
            assert {answer.status_code for answer in begun} == {200}
            assert (await http.post(address.url, content=HELLO)).status_code == 503
            of = {"Mcp-Session-Id": begun[0].headers["mcp-session-id"]}
            assert (await http.delete(address.url, headers=of)).status_code == 200
            assert (await http.post(address.url, content=HELLO)).status_code == 200


@aio
async def test_a_call_over_http_that_is_cancelled_is_cancelled_in_the_agent(cli: Cli) -> None:
    heard = Heard()
    async with listening(cli) as address, over_http(address) as client:
        call = asyncio.get_running_loop().create_task(
            client.call_tool(
                "ask_peer", {"peer": "tester", "prompt": "wait"}, progress_callback=heard
            )
        )
        await heard.line_with("is answering")
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await until(lambda: cli.agents_left() == [])


@aio
async def test_a_server_over_http_that_ends_leaves_no_peer(cli: Cli) -> None:
    async with listening(cli) as address:
        async with over_http(address) as client:
            started = await client.call_tool("start_job", {"peer": "tester", "prompt": "wait"})
            await until_running(client, started.structured_content["job"])
        assert cli.agents_left() != []
    assert cli.agents_left() == []


CALLER = """
import asyncio, sys, httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main(url, token):
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode="legacy") as client:
            asked = {"peer": "tester", "prompt": "hello"}
            print((await client.call_tool("ask_peer", asked)).content[0].text)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the caller cannot be found")
@aio
async def test_delegated_work_that_comes_over_http_is_known_by_its_process(cli: Cli) -> None:
    async with listening(cli) as address:
        for deep, words in (({}, "you said hello"), ({"DRAGOMAN_DEPTH": "1"}, "at depth 1")):
            said = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", CALLER, address.url, address.token],
                env={**cli.env, **deep},
                capture_output=True,
                text=True,
                timeout=WAIT,
                check=False,
            )
            assert words in said.stdout, said.stderr

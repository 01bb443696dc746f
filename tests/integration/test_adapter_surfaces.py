"""A peer with a Python adapter does its work by it at every surface, from the program to the agent.

The surfaces are `dragoman run`, `dragoman delegate`, the tools `ask_peer` and `delegate` of
`dragoman serve mcp` driven by the official client, and `dragoman serve acp` driven by an editor.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import acp as sdk
import pytest

from dragoman.broker.client.brokers import list_brokers
from dragoman.paths import find_paths
from tests.aio import aio
from tests.integration.broker_places import until
from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.mcp_places import Heard, over_stdio, text_of
from tests.integration.test_cli_adapters import ADAPTER, FAILING, lines, project
from tests.integration.test_serve_acp import editor


@pytest.fixture
def cli() -> Iterator[Cli]:
    """A user whose settings keep peers warm, which changes nothing for an adapter."""
    with warm_cli() as cli:
        yield cli


async def by_run(cli: Cli, prompt: str) -> str:
    done = await asyncio.to_thread(cli.child, "run", "tool", prompt, "--format", "quiet")
    return done.out + done.err


async def by_delegate(cli: Cli, prompt: str) -> str:
    words = ("delegate", "plan", prompt, "--peer", "tool", "--format", "json")
    done = await asyncio.to_thread(cli.child, *words)
    told = lines(done.out)[-1] if done.out else {}
    return "".join([told.get("text") or "", done.out, done.err])


async def by_ask_peer(cli: Cli, prompt: str) -> str:
    async with over_stdio(cli) as client:
        return text_of(await client.call_tool("ask_peer", {"peer": "tool", "prompt": prompt}))


async def by_delegate_tool(cli: Cli, prompt: str) -> str:
    wanted = {"role": "plan", "peer": "tool", "prompt": prompt}
    async with over_stdio(cli) as client:
        return text_of(await client.call_tool("delegate", wanted))


async def by_editor(cli: Cli, prompt: str) -> str:
    async with editor(cli) as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        try:
            await it.agent.set_config_option("peer", session, "tool")
            return await it.ask(session, prompt)
        except sdk.RequestError as error:
            return f"{error} {error.data}"


Surface = Callable[[Cli, str], Awaitable[str]]
SURFACES: dict[str, Surface] = {
    "run": by_run,
    "delegate": by_delegate,
    "ask_peer": by_ask_peer,
    "delegate tool": by_delegate_tool,
    "editor": by_editor,
}
every_surface = pytest.mark.parametrize("surface", SURFACES)


def marked(mark: Path) -> str:
    """An adapter that leaves a mark when it is imported."""
    return f"import os\nos.makedirs({str(mark)!r}, exist_ok=True)\n" + ADAPTER


def job_ids(cli: Cli) -> list[str]:
    return [job["job"] for job in lines(cli.child("jobs", "list", "--format", "json").out)]


@every_surface
@aio
async def test_a_trusted_adapter_of_a_project_does_the_work(surface: str, cli: Cli) -> None:
    project(cli)
    told = await SURFACES[surface](cli, "a house")
    assert "you said ADAPTED a house" in told
    assert list_brokers(find_paths(cli.env)) == [], "an adapter works without a broker"
    # It is stored as a run without an adapter is; a delegation is a job with a job per attempt.
    stored = [
        lines(cli.child("jobs", "result", id, "--format", "json").out)[0] for id in job_ids(cli)
    ]
    assert stored
    for job in stored:
        assert (job["state"], job["outcome"], job["prompt"]) == ("ended", "ok", "a house"), job
        assert job["text"] == "you said ADAPTED a house"
    cli.wait_for_agents()


@every_surface
@aio
async def test_an_untrusted_adapter_never_runs(surface: str, cli: Cli) -> None:
    mark = cli.home / "mark"
    file = project(cli, marked(mark), trusted=False)
    told = await SURFACES[surface](cli, "a house")
    assert "ADAPTED" not in told
    # An editor is not offered the peer, and so no choice of peers.
    reason = "the project defines the peer tool and is not trusted"
    assert (reason if surface != "editor" else "the agent has no option 'peer'") in told
    assert not mark.exists()
    # The project is trusted, and then its adapter is changed.
    file.write_text(ADAPTER)
    assert cli("config", "trust", "--yes").code == 0
    file.write_text(marked(mark))
    told = await SURFACES[surface](cli, "a house")
    assert f"{file} is not trusted" in told and "dragoman config trust" in told
    assert not mark.exists()
    # It leaves its mark if it is trusted, so that its absence says something.
    assert cli("config", "trust", "--yes").code == 0
    assert "ADAPTED" in await SURFACES[surface](cli, "a house")
    assert mark.exists()


@every_surface
@aio
async def test_a_missing_or_failing_adapter_is_an_error_that_names_it(
    surface: str, cli: Cli
) -> None:
    file = project(cli, None)
    told = await SURFACES[surface](cli, "a house")
    assert "the adapter tool_adapter.py of tool" in told and f"there is no {file}" in told
    project(cli, FAILING)
    told = await SURFACES[surface](cli, "a house")
    assert f"{file}, the adapter of tool, failed: LookupError: no table for plan" in told
    cli.wait_for_agents()


@every_surface
@aio
async def test_a_limit_of_time_ends_an_adapter_that_waits(surface: str, cli: Cli) -> None:
    project(cli)
    config = cli.home / "config_home"
    config.mkdir()
    (config / "config.toml").write_text("[timeouts]\ntotal = 1\n")
    told = await SURFACES[surface](cli, "wait")
    assert "timed out after 1 s" in told, told
    cli.wait_for_agents()


@aio
async def test_a_tool_call_that_is_cancelled_ends_the_adapter_and_its_agent(cli: Cli) -> None:
    project(cli)
    heard = Heard()
    async with over_stdio(cli) as client:
        wanted = {"peer": "tool", "prompt": "wait"}
        started = await client.call_tool("start_job", wanted)
        job = started.structured_content["job"]
        await until(lambda: cli.agents_left() != [])
        await client.call_tool("cancel_job", {"job": job})
        ended = await client.call_tool(
            "job_result", {"job": job, "wait": 10}, progress_callback=heard
        )
        assert ended.structured_content["outcome"] == "cancelled"
    cli.wait_for_agents()


@aio
async def test_an_adapter_is_not_asked_for_a_session_that_goes_on(cli: Cli) -> None:
    project(cli)
    async with over_stdio(cli) as client:
        wanted = {"peer": "tool", "prompt": "a house", "session": "talk"}
        told = text_of(await client.call_tool("ask_peer", wanted))
    assert "tool is run by its Python adapter, which opens a new session" in told


# -- roles


OTHER_ROLES = ADAPTER.replace('["plan", "review"]', '["draw", "review"]').replace(
    '"plan": "ADAPTED "', '"draw": "DRAWN "'
)


def test_the_roles_of_the_adapter_count_and_not_those_of_its_descriptor(cli: Cli) -> None:
    project(cli, OTHER_ROLES)
    (row,) = [one for one in lines(cli("peers", "--format", "json").out) if one["name"] == "tool"]
    assert row["roles"] == ["draw", "review"]
    done = cli("delegate", "draw", "a house", "--format", "json")
    assert done.code == 0, done
    assert lines(done.out)[-1]["text"] == "you said DRAWN a house"
    explained = cli("explain", "plan", "--format", "json").out
    (against,) = [one for one in json.loads(explained)["passed_over"] if one["peer"] == "tool"]
    assert against["detail"] == "it does not claim plan; it claims draw, review"
    named = cli("delegate", "plan", "a house", "--peer", "tool")
    assert "does not claim the role 'plan'; it claims draw, review" in named.out + named.err


def test_an_agent_file_may_name_a_role_of_the_adapter(cli: Cli) -> None:
    project(cli, OTHER_ROLES)
    file = cli.cwd / "artist.md"
    file.write_text("---\nname: artist\ndelegate_to: tool-draw\n---\nBe brief.\n")
    done = cli("delegate", "--agent", str(file), "a house", "--format", "json")
    assert done.code == 0, done
    assert lines(done.out)[-1]["text"] == "you said DRAWN Be brief.\n\na house"


def test_explain_passes_a_peer_over_whose_adapter_does_not_load(cli: Cli) -> None:
    project(cli, "raise RuntimeError('no table')\n")
    (against,) = [
        one
        for one in json.loads(cli("explain", "plan", "--format", "json").out)["passed_over"]
        if one["peer"] == "tool"
    ]
    assert against["reason"] == "adapter_invalid"
    assert "RuntimeError: no table" in against["detail"]
    (row,) = [one for one in lines(cli("peers", "--format", "json").out) if one["name"] == "tool"]
    assert row["roles"] == ["plan", "review"]
    assert "its adapter cannot be used: `dragoman doctor` says why" in row["notes"]

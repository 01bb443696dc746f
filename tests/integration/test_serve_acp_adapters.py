"""A peer with a Python adapter in `dragoman serve acp`, from an editor to the agent and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acp as sdk
import pytest

from dragoman.broker.client.brokers import list_brokers
from dragoman.paths import find_paths
from tests.aio import aio
from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.test_cli_adapters import ADAPTER, FAILING, project
from tests.integration.test_serve_acp import editor


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def jobs(cli: Cli) -> list[tuple[Any, ...]]:
    listed = cli.child("jobs", "list", "--format", "json").out.splitlines()
    rows = [json.loads(line) for line in listed]
    return [(row["peer"], row["state"], row["outcome"]) for row in reversed(rows)]


@aio
async def test_a_trusted_adapter_does_the_work_of_the_chosen_role(warm: Cli) -> None:
    project(warm)
    async with editor(warm, "--peer", "tool", "--role", "plan") as it:
        opened = await it.agent.new_session(str(warm.cwd))
        session = opened.session_id
        assert opened.config_options is not None
        assert [option.id for option in opened.config_options] == ["peer", "role"]
        assert await it.ask(session, "a house") == "you said ADAPTED a house"
        # Each prompt has a session of its own, which learns what was said before.
        second = await it.ask(session, "a garden")
        assert second.startswith("you said ADAPTED a garden\n\n[Handover]")
        assert "User: a house\ntool: you said ADAPTED a house" in second
        await it.agent.set_config_option("role", session, "review")
        assert (await it.ask(session, "it")).startswith("you said REVIEWED it\n\n[Handover]")
    assert jobs(warm) == [("tool", "ended", "ok")] * 3
    assert list_brokers(find_paths(warm.env)) == []
    async with editor(warm) as it:
        await it.agent.load_session(str(warm.cwd), session)
        said = [update.content.text for update in it.updates if hasattr(update, "content")]
        assert said[:2] == ["a house", "you said ADAPTED a house"]
        assert "User: it\ntool: you said REVIEWED it" in await it.ask(session, "again")


@aio
async def test_an_adapter_works_in_its_own_role_if_it_does_not_claim_the_chosen_one(
    warm: Cli,
) -> None:
    project(warm)
    async with editor(warm, "--peer", "tool") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        told = await it.ask(session, "a house")
        notice = "tool works as plan: its adapter does not claim the role execute"
        assert notice in told and told.endswith("you said ADAPTED a house")


@pytest.mark.parametrize("changed", [True, False], ids=["changed since", "never trusted"])
@aio
async def test_an_untrusted_adapter_never_runs(warm: Cli, tmp_path: Path, changed: bool) -> None:
    mark = tmp_path / "mark"
    hostile = f"import os\nos.makedirs({str(mark)!r}, exist_ok=True)\n{ADAPTER}"
    if changed:
        project(warm).write_text(hostile)
    else:
        project(warm, hostile, trusted=False)
    async with editor(warm) as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        words = "tool_adapter.py is not trusted" if changed else None
        with pytest.raises(sdk.RequestError, match=words):
            await it.agent.set_config_option("peer", session, "tool")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (FAILING, "failed: LookupError: no table for plan"),
        (ADAPTER.replace("return judge(result, launch.way.quirks)", "return 7"), "returned int"),
    ],
)
@aio
async def test_a_failing_adapter_is_named_and_the_next_prompt_tries_again(
    warm: Cli, code: str, words: str
) -> None:
    file = project(warm, code)
    async with editor(warm, "--peer", "tool", "--role", "plan") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        for _ in range(2):
            with pytest.raises(sdk.RequestError, match=words) as failed:
                await it.agent.prompt(session, [sdk.text_block("a house")])
            assert str(file) in str(failed.value)
            assert isinstance(failed.value.data, dict)
            assert (failed.value.data["outcome"], failed.value.data["errorClass"]) == (
                "failed",
                "adapter_failed",
            )
    assert jobs(warm) == [("tool", "ended", "failed")] * 2


@aio
async def test_an_adapter_that_does_not_load_is_named(warm: Cli) -> None:
    project(warm, None)
    async with editor(warm) as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        with pytest.raises(sdk.RequestError, match="the adapter tool_adapter.py of tool"):
            await it.agent.set_config_option("peer", session, "tool")


@aio
async def test_a_cancel_ends_the_adapter_and_its_agent(warm: Cli) -> None:
    project(warm)
    async with editor(warm, "--peer", "tool", "--role", "plan") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        call = asyncio.get_running_loop().create_task(
            it.agent.prompt(session, [sdk.text_block("wait")])
        )
        await it.hear("waiting")
        await it.agent.cancel(session)
        assert (await call).stop_reason == "cancelled"
        assert warm.agents_left() == []
        assert (await it.ask(session, "a house")).startswith("you said ADAPTED a house")
    assert jobs(warm) == [("tool", "ended", "cancelled"), ("tool", "ended", "ok")]


@aio
async def test_the_user_of_the_editor_is_asked_and_only_text_is_taken(warm: Cli) -> None:
    project(warm)
    async with editor(warm, "--peer", "tool", "--role", "plan") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        await it.ask(session, "write")
        assert len(it.asked) == 1
        with pytest.raises(
            sdk.RequestError, match="accepts only text prompts: leave out the image"
        ):
            blocks = [sdk.text_block("look"), sdk.image_block("aGVsbG8=", "image/png")]
            await it.agent.prompt(session, blocks)


@aio
async def test_an_adapter_that_prompts_in_a_mode_that_does_not_ask_is_stopped(warm: Cli) -> None:
    silent = 'await session.set_mode("code")\n        prefix ='
    project(warm, ADAPTER.replace("prefix =", silent))
    with (warm.cwd / "dragoman.toml").open("a") as file:
        file.write('\n[peers.tool.enforcement]\nmodes = ["plan"]\n')
    assert warm.child("config", "trust", "--yes").code == 0
    async with editor(warm, "--peer", "tool", "--role", "plan") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        with pytest.raises(sdk.RequestError, match="in the mode code, in which it does not ask"):
            await it.agent.prompt(session, [sdk.text_block("wait")])
        assert warm.agents_left() == []

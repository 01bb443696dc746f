"""`dragoman serve acp` where something is killed, stopped or not taken, with real programs.

What is alike at every surface is in `test_run_surfaces`. Here is what it means for an editor: its
user sees and chooses the model, its turns end with it, its sessions have ids in place of names.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import acp as sdk
import pytest

from dragoman.broker.client.brokers import list_brokers
from dragoman.paths import find_paths
from tests.aio import aio
from tests.integration.broker_places import until
from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.delegated_peers import add_peer, read_lines
from tests.integration.mcp_places import WAIT, describe
from tests.integration.test_run_surfaces import (
    STOPPED_TIMEOUT,
    Fault,
    answers,
    in_new_session,
    jobs,
    prompted,
    told_by,
)
from tests.integration.test_serve_acp import Editor, editor


@contextmanager
def peer_alpha() -> Iterator[Cli]:
    """A user with one peer that is kept warm."""
    with warm_cli() as cli:
        config = cli.home / "config_home"
        add_peer(config, cli.home, "alpha", "ok", ("review",))
        (config / "config.toml").write_text('enabled_peers = ["alpha"]\n')
        yield cli


@pytest.fixture
def warm() -> Iterator[Cli]:
    with peer_alpha() as cli:
        yield cli


def ask_for_large(cli: Cli) -> None:
    """Ask for a model in the settings that the peer offers and does not take."""
    config = cli.home / "config_home" / "config.toml"
    config.write_text(f'{config.read_text()}\n[peer.alpha]\nmodel = "large"\n')
    answers(cli, "keeps-model")


NOT_TAKEN = (
    "alpha was asked for the model 'large' but uses 'small'; "
    "choose another model, or omit it: then alpha decides"
)


@pytest.mark.parametrize("session", ["new", "of a later choice"])
@aio
async def test_nothing_is_prompted_until_the_user_chooses_a_model_that_the_peer_takes(
    session: str, warm: Cli
) -> None:
    ask_for_large(warm)
    words = ("--peer", "alpha") if session == "new" else ()
    async with editor(warm, *words) as it:
        opened = await it.agent.new_session(str(warm.cwd))
        if session != "new":
            await it.agent.set_config_option("peer", opened.session_id, "alpha")
        for _ in range(2):
            with pytest.raises(sdk.RequestError) as refused:
                await it.ask(opened.session_id, "x")
            assert str(refused.value) == NOT_TAKEN
        with pytest.raises(sdk.RequestError) as refused:
            await it.agent.set_config_option("model", opened.session_id, "large")
        assert str(refused.value) == NOT_TAKEN
        assert read_lines(warm.home / "alpha.prompts") == []
        chosen = await it.agent.set_config_option("model", opened.session_id, "small")
        used = {one.id: one.current_value for one in chosen.config_options}
        assert used["model"] == "small"
        assert await it.ask(opened.session_id, "x") == "alpha did: x"
        # The one before stays, and prompts go on with it.
        with pytest.raises(sdk.RequestError) as refused:
            await it.agent.set_config_option("model", opened.session_id, "large")
        assert str(refused.value) == NOT_TAKEN
        assert await it.ask(opened.session_id, "y") == "alpha did: y"
    assert read_lines(warm.home / "alpha.prompts") == ["x", "y"]


@aio
async def test_a_model_that_was_not_taken_is_asked_for_again_when_the_session_is_loaded(
    warm: Cli,
) -> None:
    ask_for_large(warm)
    async with editor(warm, "--peer", "alpha") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
    async with editor(warm, "--peer", "alpha") as it:
        await it.agent.load_session(str(warm.cwd), session)
        with pytest.raises(sdk.RequestError) as refused:
            await it.ask(session, "x")
        assert str(refused.value) == NOT_TAKEN
    config = warm.home / "config_home" / "config.toml"
    config.write_text(config.read_text().replace('"large"', '"small"'))
    async with editor(warm, "--peer", "alpha") as it:
        await it.agent.load_session(str(warm.cwd), session)
        assert await it.ask(session, "y") == "alpha did: y"
    assert read_lines(warm.home / "alpha.prompts") == ["y"]


@aio
async def test_a_peer_that_takes_a_third_model_is_set_back_to_the_one_before(warm: Cli) -> None:
    answers(warm, "third-model")
    async with editor(warm, "--peer", "alpha") as it:
        session = (await it.agent.new_session(str(warm.cwd))).session_id
        with pytest.raises(sdk.RequestError, match="asked for the model 'large' but uses 'other'"):
            await it.agent.set_config_option("model", session, "large")
        chosen = await it.agent.set_config_option("role", session, "review")
        used = {one.id: one.current_value for one in chosen.config_options}
        assert used["model"] == "small"
        assert await it.ask(session, "x") == "alpha did: x"


@pytest.mark.parametrize("how", ["hang", "deaf"])
@aio
async def test_a_turn_is_cancelled_when_its_editor_leaves(how: str, warm: Cli) -> None:
    # A deaf peer does not end its turn.
    config = warm.home / "config_home" / "config.toml"
    config.write_text(f"{config.read_text()}\n[timeouts]\ncancel_grace = 0.5\ntotal = 600\n")
    answers(warm, how)
    async with editor(warm, "--peer", "alpha") as it:
        call = asyncio.get_running_loop().create_task(in_new_session(it, warm))
        meta = warm.home / "alpha.meta"
        await until(lambda: meta.exists() and meta.read_text() != "")
        assert "budgets" not in meta.read_text(), "the terms are for the broker alone"
    call.cancel()

    def outcomes() -> list[Any]:
        return [(job["state"], job["outcome"]) for job in jobs(warm)]

    async with asyncio.timeout(WAIT):
        while ("ended", "cancelled") not in await asyncio.to_thread(outcomes):
            pass


@aio
async def test_two_editors_that_choose_a_peer_in_one_session_at_once_get_one_session_of_it(
    warm: Cli,
) -> None:
    # A session of an editor has an id in place of a name. Its first turn with a peer begins the
    # session of that peer.
    describe(warm, "tester", "review")
    config = warm.home / "config_home" / "config.toml"
    config.write_text('enabled_peers = ["alpha", "tester"]\n')
    async with editor(warm) as one, editor(warm) as other:
        session = (await one.agent.new_session(str(warm.cwd))).session_id
        await other.agent.resume_session(cwd=str(warm.cwd), session_id=session)
        await asyncio.gather(
            *(it.agent.set_config_option("peer", session, "tester") for it in (one, other))
        )
        for it in (one, other):
            assert await it.ask(session, "hello") == "you said hello"
    listed = warm("sessions", "list", "--format", "json").out.splitlines()
    peers = [json.loads(line)["peer"] for line in listed]
    assert sorted(peers) == ["dragoman", "tester"]


# -- a broker that is stopped by a signal, at every stage of an editor's session


async def at_new_session(it: Editor, cli: Cli, stop: Fault) -> Any:
    """The broker is there from another call, and is stopped before the session is opened."""
    first = await it.agent.new_session(str(cli.cwd))
    await it.agent.close_session(first.session_id)
    await stop()
    return await it.agent.new_session(str(cli.cwd))


async def at_opening(it: Editor, cli: Cli, stop: Fault) -> Any:
    """The peer does not answer the request for a session, and the broker is stopped meanwhile."""
    answers(cli, "mute-session")
    call = asyncio.get_running_loop().create_task(it.agent.new_session(str(cli.cwd)))
    await until(lambda: read_lines(cli.home / "alpha.openings") != [])
    await stop()
    return await call


async def before_prompt(it: Editor, cli: Cli, stop: Fault) -> Any:
    session = (await it.agent.new_session(str(cli.cwd))).session_id
    await stop()
    return await it.agent.prompt(session, [sdk.text_block("x")])


async def in_turn(it: Editor, cli: Cli, stop: Fault) -> Any:
    answers(cli, "hang")
    session = (await it.agent.new_session(str(cli.cwd))).session_id
    call = asyncio.get_running_loop().create_task(
        it.agent.prompt(session, [sdk.text_block("x")]),
    )
    await prompted(cli)
    await stop()
    return await call


async def at_cancel(it: Editor, cli: Cli, stop: Fault) -> Any:
    answers(cli, "hang")
    session = (await it.agent.new_session(str(cli.cwd))).session_id
    call = asyncio.get_running_loop().create_task(
        it.agent.prompt(session, [sdk.text_block("x")]),
    )
    await prompted(cli)
    await stop()
    await it.agent.cancel(session)
    return await call


async def at_option(it: Editor, cli: Cli, stop: Fault) -> Any:
    answers(cli, "keeps-model")
    session = (await it.agent.new_session(str(cli.cwd))).session_id
    await stop()
    return await it.agent.set_config_option("model", session, "large")


async def at_close(it: Editor, cli: Cli, stop: Fault) -> Any:
    session = (await it.agent.new_session(str(cli.cwd))).session_id
    await stop()
    return await it.agent.close_session(session)


async def at_load(it: Editor, cli: Cli, stop: Fault) -> Any:
    session = (await it.agent.new_session(str(cli.cwd))).session_id
    await it.ask(session, "x")
    await stop()
    return await it.agent.load_session(str(cli.cwd), session)


OPENED = (at_new_session, at_load)
"""The broker is ended as it does not answer, and another one takes its place."""
ENDED = (at_cancel, at_close)
"""The client does not wait for the broker."""
LOST = {
    at_opening: ("broker_unavailable", False),
    before_prompt: ("broker_failed", True),
    in_turn: ("broker_failed", True),
    at_option: ("broker_failed", True),
}
"""The class of the error, and whether the request may have run."""


STAGES = (*OPENED, *ENDED, *LOST)


@pytest.fixture
def alphas() -> Iterator[list[Cli]]:
    """A user for each stage."""
    with ExitStack() as stack:
        yield [stack.enter_context(peer_alpha()) for _ in STAGES]


async def stopped_at(stage: Callable[..., Awaitable[Any]], cli: Cli) -> Any:
    """What an editor gets whose broker is stopped at a stage."""
    pids: list[int] = []

    async def stop() -> None:
        (record,) = list_brokers(find_paths(cli.env))
        pids.append(record.broker.pid)
        os.kill(record.broker.pid, signal.SIGSTOP)

    try:
        async with editor(cli, "--peer", "alpha", timeout=STOPPED_TIMEOUT) as it:
            try:
                return await stage(it, cli, stop)
            except sdk.RequestError as error:
                return told_by(error)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(120)
@aio
async def test_an_editor_gets_an_answer_when_the_broker_is_stopped_at_any_stage(
    alphas: list[Cli],
) -> None:
    # All at once: most of them wait until the silent broker has been probed.
    answers = await asyncio.gather(*map(stopped_at, STAGES, alphas))
    told = dict(zip(STAGES, answers, strict=True))
    for stage in OPENED:
        assert told[stage].config_options[0].current_value == "alpha", stage
    assert told[at_cancel].stop_reason == "cancelled"
    assert "failure" not in str(told[at_close])
    for stage, expected in LOST.items():
        error = told[stage]
        assert (error["errorClass"], error["mayHaveRun"]) == expected, stage
        assert "does not answer within 10 s; `dragoman broker stop" in error["failure"]["message"]
    # A broker that goes on has still the prompt that it got while it was stopped.
    prompts = [read_lines(cli.home / "alpha.prompts") for cli in alphas]
    assert all(each in ([], ["x"]) for each in prompts), "nothing is prompted twice"

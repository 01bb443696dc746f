"""The model and the mode of a session are the same with a broker and without, in every dialect."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.cli_shell import AGENT, Cli, Done, warm_cli

CODEX = (sys.executable, str(Path(__file__).with_name("codex_agent.py")))


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def both(cli: Cli, *words: str) -> tuple[Done, Done]:
    """The same command with a broker and without."""
    cold = replace(cli, extra={**cli.extra, "DRAGOMAN_WARM": "0"})
    return cli("run", "settings", *words), cold("run", "settings", *words)


def taken(done: Done) -> tuple[int, str]:
    return done.code, done.out


@pytest.mark.parametrize(
    ("dialect", "agent", "model", "mode"),
    [
        ("acp", AGENT, "large", "plan"),
        ("codex", CODEX, "luna", "workspace-write"),
        ("codex", CODEX, "one-of-the-providers-own", None),
        ("codex", (*CODEX, "openai"), "luna", None),
        ("keyed", (*AGENT, "maker"), "maker/huge", "plan"),
        ("keyed", AGENT, None, "plan"),
    ],
)
def test_a_model_and_a_mode_are_set_alike(
    cli: Cli, dialect: str, agent: tuple[str, ...], model: str | None, mode: str | None
) -> None:
    options = ["--dialect", dialect, "--format", "quiet"]
    if model is not None:
        options += ["--model", model]
    if mode is not None:
        options += ["--mode", mode]
    warm, cold = both(cli, *options, "--", *agent)
    assert taken(warm) == taken(cold)
    assert warm.code == 0, warm.err
    if model is not None:
        assert f"model {model}" in warm.out
    if mode is not None:
        assert f"mode {mode.replace('-w', 'W')}" in warm.out


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("luna", ""),
        ("lunaa", "did you mean luna?"),
        ("one-of-the-providers-own", "it lists sol, luna"),
    ],
)
def test_a_model_that_the_agent_does_not_list_is_reported_on_stderr(
    cli: Cli, model: str, told: str
) -> None:
    for done in both(cli, "--dialect", "codex", "--model", model, "--", *CODEX):
        assert (done.code, f"model {model}" in done.out) == (0, True), done
        unlisted = f"does not list the model {model!r}, but its provider may have it; {told}"
        assert (unlisted in done.err) == bool(told), done.err
        assert "does not list" in done.err or not told


@pytest.mark.parametrize(
    ("dialect", "agent"),
    [
        ("acp", AGENT),
        ("acp", (*AGENT, "bare")),
        ("codex", (*CODEX, "openai")),
        ("keyed", AGENT),
        ("oneshot", AGENT),
        ("threads", AGENT),
        ("tagged", AGENT),
        ("chained", AGENT),
    ],
)
@pytest.mark.parametrize("option", ["--model", "--mode"])
def test_what_cannot_be_had_is_refused_alike(
    cli: Cli, dialect: str, agent: tuple[str, ...], option: str
) -> None:
    warm, cold = both(cli, "--dialect", dialect, option, "nope", "--", *agent)
    # In the keyed dialect the modes are told when a session is open, and the peer itself refuses.
    refused = 1 if (dialect, option) == ("keyed", "--mode") else 2
    assert (warm.code, cold.code) == (refused, refused), (warm, cold)
    assert "settings" not in warm.out + cold.out and "model" not in warm.out + cold.out


def test_the_settings_name_a_model_and_a_mode_for_every_dialect(cli: Cli) -> None:
    home = cli.home / "config_home"
    (home / "peers").mkdir(parents=True)
    (home / "peers" / "mine.toml").write_text(
        f'name = "mine"\ntitle = "Mine"\nprotocol = "codex"\n[[launch]]\n'
        f"command = {json.dumps(CODEX)}\n"
    )
    settings = home / "config.toml"
    settings.write_text('[peer.mine]\nmodel = "luna"\nmode = "workspace-write"\n')
    try:
        cold = replace(cli, extra={**cli.extra, "DRAGOMAN_WARM": "0"})
        for each in (cli, cold):
            done = each.child("run", "mine", "hi", "--format", "quiet")
            assert (done.code, done.out) == (0, "model luna mode workspaceWrite\n"), done
    finally:
        settings.unlink()


@pytest.mark.parametrize("agent", [AGENT, (*AGENT, "bare")])
def test_a_session_that_could_not_have_its_model_does_not_exist(
    cli: Cli, agent: tuple[str, ...]
) -> None:
    for done in both(cli, "-m", "nope", "-s", "parser", "--", *agent):
        assert done.code == 2
        listed = cli("sessions", "list", "--all")
        assert "parser" not in listed.out, listed.out
    begun = cli("run", "hi", "-s", "parser", "--", *agent)
    assert begun.code == 0, begun.err
    assert cli("sessions", "delete", "parser", "--yes").code == 0


PIXEL = bytes.fromhex("89504e470d0a1a0a")


def test_a_session_whose_first_prompt_could_not_be_sent_does_not_exist(cli: Cli) -> None:
    (cli.cwd / "pixel.png").write_bytes(PIXEL)
    words = ("run", "hi", "--image", "pixel.png", "-s", "sketch")
    for more in ((), ("--cold",), ("--no-wait",)):
        done = cli(*words, *more, "--", *AGENT, "blind")
        assert done.code == 2 and "does not accept images" in done.err, done
        listed = cli("sessions", "list", "--all")
        assert "sketch" not in listed.out, listed.out


def test_a_session_that_goes_on_is_kept_when_it_cannot_have_a_model(cli: Cli) -> None:
    assert cli("run", "hi", "-s", "kept", "--", *AGENT).code == 0
    assert cli("run", "hi", "-s", "kept", "-m", "nope", "--", *AGENT).code == 2
    assert "kept" in cli("sessions", "list").out
    again = cli("run", "settings", "-s", "kept", "-m", "large", "--format", "quiet", "--", *AGENT)
    assert (again.code, again.out[:19]) == (0, "model large-preview")

"""The verification ladder against the four real agents, with the fake model behind them.

What a card says is held field by field against what is known of each agent. A field that depends
on the machine, or on the moment, is named and left to its own test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.catalogue.card import CARDS, CardStore, MeasuredFacts, RungResult, RungVerdict
from dragoman.catalogue.launch import resolve, with_env
from dragoman.config import find_paths
from dragoman.testing.fake_model import FakeModel
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.ladder import climb
from dragoman.verify.time_limits import LadderLimits
from scripts.peers import install
from tests.aio import aio
from tests.peers import codex
from tests.peers.agents import COPILOT, GEMINI, QWEN, WAIT, Agent, descriptor, surrounded
from tests.peers.programs import peer_environment

CANARIES = Canaries(
    echo="Say {token}",
    slow="SLOW",
    slower="SLOW",
    write="WRITE:{path}:{text}",
    shell="SHELL:{command}",
    tool="TOOL:sing:{}",
    failure="HTTP:400",
)
"""The prompts in the words of the fake model. The tool has another name with each agent, so none
is called; the server is started anyway, or it is not."""

LIMITS = LadderLimits(first_event=WAIT, silence=WAIT, tail=0.3, mcp_start=1.5)

SOMETIMES = {"late_updates", "handshake_seconds", "notifications"}
"""Qwen tells its commands when it has found them, which may be in a turn or after it; and which
kinds of notifications come depends on what a model does."""

METHODS = {
    "create": "session/new",
    "list": "session/list",
    "load": "session/load",
    "resume": "session/resume",
    "prompt": "session/prompt",
}

USUAL: dict[str, Any] = {
    "authenticated": True,
    "login": None,
    "sessions": True,
    "echo": True,
    "streaming": True,
    "cancel": True,
    "asks_permission": True,
    "respects_refusal": True,
    "refusal_ends_turn": False,
    "uses_files": False,
    "uses_terminals": False,
    "parallel_sessions": True,
    "lists_sessions": True,
    "loads_sessions": True,
    "resumes_sessions": True,
    "usage": True,
    "noise_lines": 0,
    "survives_oversized_line": True,
    "unknown_method_code": -32601,
    "id_format": "integer",
    "turn_ids": False,
    "duplicate_answers": 0,
    "errors_as_text": False,
    "clean_exit": True,
    "survivors": 0,
    "dialect": "acp",
    "dialect_shown": True,
    "protocol_version": "1",
    "methods": METHODS,
    "required_params": {"session/new": ("cwd", "mcpServers")},
    "optional_params": {"session/new": ()},
}


@dataclass(frozen=True, slots=True)
class Climber:
    """An agent, where its facts differ from the usual ones, and the rungs that warn of it."""

    name: str
    facts: dict[str, Any]
    warnings: set[str]
    agent: Agent | None = None
    inherit: tuple[str, ...] = ()
    sometimes: set[str] = field(default_factory=set)


MODES = "https://agentclientprotocol.com/protocol/session-modes#"

CLIMBERS = [
    Climber(
        "codex",
        {
            "agent_name": "codex",
            "dialect": "codex",
            "protocol_version": None,
            "modes": ("read-only", "workspace-write", "danger-full-access"),
            # Without being told otherwise it works in a sandbox that lets nothing be written.
            "uses_terminals": None,
            "mcp": True,
            "unknown_method_code": -32600,
            "unknown_session_code": -32600,
            "bad_params_code": -32600,
            "turn_ids": True,
            "methods": {
                "create": "thread/start",
                "list": "thread/list",
                "resume": "thread/resume",
                "prompt": "turn/start",
            },
            "required_params": {"thread/start": ()},
            "optional_params": {"thread/start": ("cwd",)},
        },
        {"codes", "terminals"},
        inherit=("FAKE_KEY",),
        # They come with the program and change with it; it offers them whatever its provider has.
        sometimes={"models", "model", "parent_models"},
    ),
    Climber(
        "gemini",
        {
            "agent_name": "gemini-cli",
            "models": ("auto", "gemini-2.5-pro", "gemini-3.8-flash", "gemini-3.5-flash-lite"),
            "model": "auto",
            "parent_models": (
                "auto",
                "gemini-2.5-pro",
                "gemini-3.8-flash",
                "gemini-3.5-flash-lite",
            ),
            "modes": ("default", "autoEdit", "yolo", "plan"),
            "uses_files": True,
            # Nobody trusted the folder.
            "mcp": False,
            "lists_sessions": False,
            "resumes_sessions": False,
            "unknown_session_code": -32603,
            "bad_params_code": -32603,
        },
        {"codes", "mcp"},
        GEMINI,
        # It is not tried in the minute in which the session was begun.
        sometimes={"loads_sessions", "methods"},
    ),
    Climber(
        "qwen",
        {
            "agent_name": "qwen-code",
            "models": ("$runtime|openai|fake-model(openai)",),
            "model": "$runtime|openai|fake-model(openai)",
            "parent_models": ("$runtime|openai|fake-model(openai)",),
            "modes": ("plan", "default", "auto-edit", "auto", "yolo"),
            "refusal_ends_turn": True,
            "uses_files": True,
            "mcp": True,
            "unknown_session_code": -32002,
            "bad_params_code": -32603,
        },
        {"codes", "permission"},
        QWEN,
    ),
    Climber(
        "copilot",
        {
            "agent_name": "Copilot",
            "models": None,
            "model": None,
            "parent_models": None,
            "modes": (MODES + "agent", MODES + "plan", MODES + "autopilot"),
            "refusal_ends_turn": True,
            # It takes no server that it would have to start.
            "mcp": False,
            "resumes_sessions": False,
            "unknown_session_code": -32002,
            "bad_params_code": -32602,
            "errors_as_text": True,
            "methods": {name: METHODS[name] for name in ("create", "list", "load", "prompt")},
            "required_params": {"session/new": ("cwd",)},
            "optional_params": {"session/new": ("mcpServers",)},
        },
        {"permission", "errors", "mcp"},
        COPILOT,
    ),
]


@pytest.mark.parametrize("climber", CLIMBERS, ids=lambda climber: climber.name)
@aio
async def test_the_card_of_a_real_agent_says_what_is_known_of_it(
    climber: Climber, home: Path
) -> None:
    told: list[RungResult] = []
    async with FakeModel() as model:
        environment = {**peer_environment(home), "FAKE_KEY": "k"}
        if climber.agent is None:
            codex.configure(home, model)
        else:
            climber.agent.configure(home)
            environment |= climber.agent.provider(model.url)
        with surrounded(environment):
            paths = find_paths()
            way = with_env(resolve(descriptor(climber.name)), climber.inherit)
            card = await climb(
                way,
                peer=climber.name,
                turns=True,
                paths=paths,
                canaries=CANARIES,
                limits=LIMITS,
                on_rung=told.append,
            )
    version = install.pins()[climber.name].version
    assert card.usable
    assert (card.version, card.turns) == (version, True)
    assert tuple(told) == card.rungs
    # What was measured is what is kept.
    assert CardStore(paths.data / CARDS).load(climber.name, version, card.platform) == card

    assert way.command is not None
    expected = {
        **USUAL,
        "agent_version": version,
        "executable": way.command[0],
        "launch": way.command,
        **climber.facts,
    }
    unsure = SOMETIMES | climber.sometimes
    measured = msgspec.structs.asdict(card.facts)
    assert set(expected) | unsure == set(MeasuredFacts.__struct_fields__)
    assert {name: measured[name] for name in expected if name not in unsure} == {
        name: value for name, value in expected.items() if name not in unsure
    }
    assert any("session/update" in name for name in measured["notifications"]) is (
        measured["dialect"] == "acp"
    )
    assert measured["loads_sessions"] in ({None, True} if "loads_sessions" in unsure else {True})
    warned = {rung.rung for rung in card.rungs if rung.verdict is RungVerdict.WARN}
    assert warned - {"late updates"} == climber.warnings
    assert not [rung for rung in card.rungs if rung.verdict is RungVerdict.FAIL]
    assert all(rung.remedy for rung in card.rungs if rung.verdict is RungVerdict.WARN)

"""Checks of an agent's handshake: versions, capabilities, agent info, login methods.

Covers everything before the first session. `sessions` has the checks of sessions.
"""

from __future__ import annotations

from typing import Final

from dragoman.testing.conformance import shapes
from dragoman.testing.conformance.checks import (
    PROTOCOL_VERSION,
    AgentCheck,
    Lab,
    Skip,
    agent_check,
    expect,
    hello,
)
from dragoman.testing.conformance.conversation import Gone, Violation
from dragoman.wire import codes


@agent_check("ACP1-INIT-07", "ACP1-TRN-07")
async def initialize_is_answered(lab: Lab) -> None:
    """Over stdio, the response to `initialize` has the chosen version, an integer, and the
    capabilities."""
    await lab.ready()
    version = lab.hello.get("protocolVersion")
    expect(type(version) is int, "protocolVersion is not an integer", lab.hello)
    capabilities = lab.hello.get("agentCapabilities", {})
    expect(isinstance(capabilities, dict), "agentCapabilities is not an object", lab.hello)


@agent_check("ACP1-INIT-04", "ACP1-INIT-06")
async def own_version_is_kept(lab: Lab) -> None:
    """If the client requests the version that the agent responded with, the agent agrees to it."""
    await lab.ready()
    version = lab.hello.get("protocolVersion")
    if version != PROTOCOL_VERSION:
        conversation = await lab.fresh()
        answer = await conversation.ask("initialize", hello(version=version))
        again = answer.fields().get("protocolVersion")
        expect(again == version, "it does not accept its own version", answer.message)


@agent_check("ACP1-INIT-04")
async def newer_version_is_negotiated_down(lab: Lab) -> None:
    """A request for a future version gets the latest version that the agent speaks."""
    conversation = await lab.fresh()
    answer = await conversation.ask("initialize", hello(version=99))
    version = answer.fields().get("protocolVersion")
    good = type(version) is int and 1 <= version < 99
    expect(good, "it does not respond with a version that it supports", answer.message)


@agent_check("ACP1-INIT-04", advisory=True)
async def version_zero_is_answered(lab: Lab) -> None:
    """A request for version 0 gets another version, or an error, but always a response."""
    conversation = await lab.fresh()
    answer = await conversation.ask("initialize", hello(version=0))
    if answer.error is None:
        version = answer.fields().get("protocolVersion")
        expect(type(version) is int, "protocolVersion is not an integer", answer.message)


@agent_check("ACP1-INIT-10")
async def version_as_text_is_refused(lab: Lab) -> None:
    """A string version is refused with -32602, or treated as the version of another protocol."""
    conversation = await lab.fresh()
    answer = await conversation.ask("initialize", hello(version="1.0"))
    if answer.error is None and isinstance(answer.fields().get("protocolVersion"), str):
        raise Skip("it treats a string version as another protocol")
    expect(answer.code == codes.INVALID_PARAMS, "it was not refused with -32602", answer.message)


@agent_check("ACP1-INIT-10")
async def strange_version_is_refused(lab: Lab) -> None:
    """A version that is neither a number nor a string is refused with -32602."""
    conversation = await lab.fresh()
    answer = await conversation.ask("initialize", hello(version=[1]))
    expect(answer.code == codes.INVALID_PARAMS, "it was not refused with -32602", answer.message)


@agent_check("ACP1-INIT-10")
async def session_needs_the_handshake(lab: Lab) -> None:
    """`session/new` before `initialize` is refused."""
    conversation = await lab.fresh()
    answer = await conversation.ask("session/new", {"cwd": lab.cwd, "mcpServers": []})
    expect(answer.error is not None, "a session was opened before the handshake", answer.message)


@agent_check("ACP1-INIT-11")
async def second_handshake_changes_nothing(lab: Lab) -> None:
    """A second `initialize` gets the same response as the first, or an error, and the agent
    continues."""
    conversation = await lab.fresh()
    first = await lab.greet(conversation)
    second = await conversation.ask("initialize", hello())
    if second.error is None:
        same = second.fields().get("protocolVersion") == first.get("protocolVersion")
        expect(same, "the second handshake agrees on another version", second.message)
    await conversation.fence("a second initialize")


@agent_check("ACP1-INIT-08")
async def agent_names_itself(lab: Lab) -> None:
    """`agentInfo` has a name and a version."""
    await lab.ready()
    info = lab.hello.get("agentInfo")
    expect(info is not None, "there is no agentInfo")
    named = isinstance(info, dict) and all(isinstance(info.get(n), str) for n in NAMES)
    expect(named, "agentInfo has no name or no version", info)


@agent_check("ACP1-CAP-03", "ACP1-CAP-04")
async def capabilities_are_well_formed(lab: Lab) -> None:
    """Capabilities that are switches are booleans; those that are markers are objects or null."""
    capabilities = await lab.capabilities()
    problem = shapes.capabilities(capabilities)
    expect(not problem, problem, capabilities)


@agent_check("ACP1-CAP-01", "ACP1-CAP-02")
async def bare_handshake_is_enough(lab: Lab) -> None:
    """A client that sends only its version is served; capabilities that it omits count as
    unsupported."""
    conversation = await lab.fresh()
    answer = await conversation.ask("initialize", {"protocolVersion": PROTOCOL_VERSION})
    answer.fields()
    await conversation.fence("a handshake without capabilities")


@agent_check("ACP1-CAP-02")
async def full_capabilities_are_served(lab: Lab) -> None:
    """A client that advertises every capability is served, and unknown capabilities are ignored."""
    conversation = await lab.fresh_ready(EVERYTHING)
    await conversation.fence("a handshake with every capability")


@agent_check("ACP1-CAP-09", "ACP1-FWD-01", advisory=True)
async def malformed_capabilities_count_as_absent(lab: Lab) -> None:
    """Capabilities of the wrong type are treated as absent, and the handshake succeeds."""
    conversation = await lab.fresh()
    crooked = {"fs": "yes", "terminal": 3, "session": [], "elicitation": 1}
    try:
        answer = await conversation.ask("initialize", hello(capabilities=crooked))
    except Gone as error:
        raise Violation("malformed capabilities end the agent", error.evidence) from error
    expect(answer.error is None, "the handshake fails", answer.message)


@agent_check("ACP1-AUTH-01", "ACP1-AUTH-02")
async def login_methods_are_well_formed(lab: Lab) -> None:
    """Every login method has an id and a name; a terminal method has well-formed lists."""
    await lab.ready()
    methods = lab.hello.get("authMethods")
    if not methods:
        raise Skip("it advertises no login methods")
    problem = shapes.auth_methods(methods)
    expect(not problem, problem, methods)


@agent_check("ACP1-AUTH-03")
async def terminal_login_is_not_pressed_on_others(lab: Lab) -> None:
    """A login in a terminal is offered only to clients that can run it."""
    await lab.ready()
    offered = lab.hello.get("authMethods")
    for method in offered if isinstance(offered, list) else ():
        terminal = isinstance(method, dict) and method.get("type") == "terminal"
        expect(
            not terminal,
            "a terminal login was offered to a client that does not support it",
            method,
        )


@agent_check("ACP1-AUTH-08", advisory=True)
async def unknown_login_method_is_refused(lab: Lab) -> None:
    """`authenticate` with a method that was not offered is refused."""
    conversation = await lab.ready()
    answer = await conversation.ask("authenticate", {"methodId": "dragoman-no-such-method"})
    expect(answer.error is not None, "an unknown login method succeeded", answer.message)


NAMES: Final = ("name", "version")

EVERYTHING: Final = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "auth": {"terminal": True},
    "elicitation": {"form": {}, "url": {}},
    "plan": {},
    "aCapabilityOfTomorrow": {"on": True},
    "_meta": {"dragoman": {"conformance": True}},
}

CHECKS: Final[tuple[AgentCheck, ...]] = (
    initialize_is_answered,
    own_version_is_kept,
    newer_version_is_negotiated_down,
    version_zero_is_answered,
    version_as_text_is_refused,
    strange_version_is_refused,
    session_needs_the_handshake,
    second_handshake_changes_nothing,
    agent_names_itself,
    capabilities_are_well_formed,
    bare_handshake_is_enough,
    full_capabilities_are_served,
    malformed_capabilities_count_as_absent,
    login_methods_are_well_formed,
    terminal_login_is_not_pressed_on_others,
    unknown_login_method_is_refused,
)

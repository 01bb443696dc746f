"""Checks of an agent's sessions that need no model: opening, listing, settings, closing.

None of them makes an agent call its model: the only prompts go to sessions that do not exist.
`turns` has the checks that need a turn.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.testing.conformance import shapes
from dragoman.testing.conformance.checks import AgentCheck, Lab, Skip, agent_check, expect
from dragoman.testing.conformance.conversation import Conversation, Message
from dragoman.wire import codes

NOWHERE: Final = "dragoman-no-such-session"


# -- opening


@agent_check("ACP1-SES-03", "ACP1-SES-07", "ACP1-CAP-05")
async def new_sessions_have_ids_of_their_own(lab: Lab) -> None:
    """`session/new` returns an id, and two sessions on one connection have different ids."""
    conversation, first = await lab.session()
    expect(first, "the id of a session is empty")
    second = await lab.new_session(conversation)
    expect(second["sessionId"] != first, "two sessions have the same id", second)


@agent_check("ACP1-SES-08", "ACP1-RPC-08", advisory=True)
async def relative_folder_is_refused(lab: Lab) -> None:
    """A `cwd` that is not absolute is refused with -32602."""
    await lab.session()
    conversation = await lab.fresh_ready()
    answer = await conversation.ask("session/new", {"cwd": "some/folder", "mcpServers": []})
    expect(answer.code == codes.INVALID_PARAMS, "not refused with -32602", answer.message)


@agent_check("ACP1-ERR-03", advisory=True)
async def prompt_to_no_session_is_refused(lab: Lab) -> None:
    """A prompt for a session that does not exist is refused."""
    conversation, _ = await lab.session()
    params = {"sessionId": NOWHERE, "prompt": [{"type": "text", "text": "No one is here."}]}
    answer = await conversation.ask("session/prompt", params)
    expect(answer.error is not None, "it responded as if the session existed", answer.message)


@agent_check("ACP1-CAN-11", "ACP1-RPC-03")
async def cancel_without_a_turn_is_ignored(lab: Lab) -> None:
    """`session/cancel` without a running turn, or without a session, is ignored and gets no
    response."""
    conversation, session = await lab.session()
    before = len(conversation.messages)
    conversation.tell("session/cancel", {"sessionId": session})
    conversation.tell("session/cancel", {"sessionId": NOWHERE})
    fence = await conversation.fence("session/cancel without a turn")
    for message in conversation.messages[before : fence.position]:
        expect("method" in message, "session/cancel was answered", message)


# -- settings


@agent_check("ACP1-MODE-01", advisory=True)
async def modes_are_well_formed(lab: Lab) -> None:
    """Modes have ids and names, and the current mode is one of them."""
    modes = (await _opened(lab)).get("modes")
    if modes is None:
        raise Skip("its sessions have no modes")
    problem = shapes.modes(modes)
    expect(not problem, problem, modes)


@agent_check("ACP1-MODE-02")
async def current_mode_can_be_set(lab: Lab) -> None:
    """`session/set_mode` with a listed mode succeeds."""
    modes = (await _opened(lab)).get("modes")
    if not isinstance(modes, dict):
        raise Skip("its sessions have no modes")
    conversation, session = await lab.session()
    params = {"sessionId": session, "modeId": modes.get("currentModeId")}
    (await conversation.ask("session/set_mode", params)).result()


@agent_check("ACP1-MODE-02", advisory=True)
async def unknown_mode_is_refused(lab: Lab) -> None:
    """`session/set_mode` with a mode that is not listed is refused."""
    if (await _opened(lab)).get("modes") is None:
        raise Skip("its sessions have no modes")
    conversation, session = await lab.session()
    params = {"sessionId": session, "modeId": "dragoman-no-such-mode"}
    answer = await conversation.ask("session/set_mode", params)
    expect(answer.error is not None, "an unknown mode was accepted", answer.message)


@agent_check("ACP1-MODE-04")
async def modes_are_offered_as_an_option_too(lab: Lab) -> None:
    """An agent with modes also offers an option of the category `mode` with the same value."""
    opened = await _opened(lab)
    modes = opened.get("modes")
    if not isinstance(modes, dict):
        raise Skip("its sessions have no modes")
    options = [o for o in _options(opened) if o.get("category") == "mode"]
    expect(options, "there is no config option of the category mode", opened)
    same = options[0].get("currentValue") == modes.get("currentModeId")
    expect(same, "the mode and the option do not agree", opened)


@agent_check("ACP1-CFG-03", "ACP1-CFG-10")
async def every_option_has_a_value(lab: Lab) -> None:
    """Every config option has a value, and the value is one of the possible ones."""
    options = _require_options(await _opened(lab))
    problem = shapes.config_options(options)
    expect(not problem, problem, options)


@agent_check("ACP1-CFG-04")
async def boolean_options_are_not_sent_unasked(lab: Lab) -> None:
    """A client that does not support boolean options gets none."""
    for option in _require_options(await _opened(lab)):
        boolean = option.get("type") == "boolean"
        expect(
            not boolean, "a boolean option was sent to a client that does not support them", option
        )


@agent_check("ACP1-CFG-08")
async def setting_an_option_returns_all_of_them(lab: Lab) -> None:
    """The response to `session/set_config_option` is the complete list of options."""
    options = _require_options(await _opened(lab))
    conversation, session = await lab.session()
    option = next((o for o in options if o.get("type") == "select"), None)
    if option is None:
        raise Skip("it has no option to choose from")
    params = {
        "sessionId": session,
        "configId": option.get("id"),
        "value": option.get("currentValue"),
    }
    answer = await conversation.ask("session/set_config_option", params)
    returned = _options(answer.fields())
    missing = {str(o.get("id")) for o in options} - {str(o.get("id")) for o in returned}
    expect(not missing, f"options are missing: {sorted(missing)}", answer.message)


@agent_check("ACP1-CFG-12")
async def unknown_option_is_refused(lab: Lab) -> None:
    """An unknown option or value is refused with -32602."""
    options = _require_options(await _opened(lab))
    conversation, session = await lab.session()
    params = {"sessionId": session, "configId": "dragoman-no-such-option", "value": "x"}
    answer = await conversation.ask("session/set_config_option", params)
    expect(answer.code == codes.INVALID_PARAMS, "not refused with -32602", answer.message)
    params = {**params, "configId": str(options[0].get("id")), "value": "dragoman-no-such-value"}
    answer = await conversation.ask("session/set_config_option", params)
    expect(answer.code == codes.INVALID_PARAMS, "an invalid value was accepted", answer.message)


# -- earlier sessions


@agent_check("ACP1-RPC-10")
async def methods_not_advertised_are_refused(lab: Lab) -> None:
    """A method whose capability is not advertised is refused."""
    conversation = await lab.ready()
    tried = 0
    for capability, method, params in OPTIONAL:
        if not await lab.can(capability):
            tried += 1
            answer = await conversation.ask(method, {**params, "cwd": lab.cwd})
            expect(
                answer.error is not None, f"{method} works but is not advertised", answer.message
            )
    if not tried:
        raise Skip("it advertises every method")


@agent_check("ACP1-ERR-03", advisory=True)
async def loading_no_session_is_refused(lab: Lab) -> None:
    """`session/load` for a session that does not exist is refused."""
    await lab.require("loadSession")
    await lab.session()
    conversation = await lab.fresh_ready()
    params = {"sessionId": NOWHERE, "cwd": lab.cwd, "mcpServers": []}
    answer = await conversation.ask("session/load", params)
    expect(answer.error is not None, "a session that does not exist was loaded", answer.message)


@agent_check("ACP1-LIST-02")
async def list_of_sessions_is_a_list(lab: Lab) -> None:
    """`session/list` returns `sessions`, which is a list even if it is empty."""
    await lab.require("sessionCapabilities.list")
    conversation, _ = await lab.session()
    answer = await conversation.ask("session/list", {})
    expect(
        isinstance(answer.fields().get("sessions"), list), "sessions is not a list", answer.message
    )
    nowhere = await conversation.ask("session/list", {"cwd": "/dragoman/no/such/folder"})
    expect(
        isinstance(nowhere.fields().get("sessions"), list),
        "sessions is not a list",
        nowhere.message,
    )


@agent_check("ACP1-LIST-07")
async def listed_sessions_are_well_formed(lab: Lab) -> None:
    """Listed sessions have an id and a working directory."""
    entries = await _listed(lab)
    if not entries:
        raise Skip("it lists no sessions")
    for entry in entries:
        problem = shapes.session_info(entry)
        expect(not problem, problem, entry)


@agent_check("ACP1-LIST-09")
async def listing_changes_nothing(lab: Lab) -> None:
    """Two consecutive lists contain the same sessions."""
    first = {str(entry.get("sessionId")) for entry in await _listed(lab)}
    second = {str(entry.get("sessionId")) for entry in await _listed(lab)}
    expect(first == second, "the second list differs from the first", sorted(first ^ second))


@agent_check("ACP1-LIST-05")
async def invalid_cursor_is_refused(lab: Lab) -> None:
    """A cursor that the agent did not issue is refused."""
    await lab.require("sessionCapabilities.list")
    conversation = await lab.ready()
    answer = await conversation.ask("session/list", {"cursor": "dragoman-no-such-cursor"})
    expect(answer.error is not None, "an invented cursor was accepted", answer.message)


@agent_check("ACP1-DEL-02")
async def deleting_twice_succeeds(lab: Lab) -> None:
    """Deleting a session that does not exist succeeds."""
    await lab.require("sessionCapabilities.delete")
    conversation = await lab.ready()
    for _ in range(2):
        (await conversation.ask("session/delete", {"sessionId": NOWHERE})).result()


@agent_check("ACP1-DEL-03")
async def deleted_session_is_not_listed(lab: Lab) -> None:
    """A deleted session is no longer listed."""
    await lab.require("sessionCapabilities.delete")
    await lab.require("sessionCapabilities.list")
    conversation, _ = await lab.session()
    session = (await lab.new_session(conversation))["sessionId"]
    (await conversation.ask("session/delete", {"sessionId": session})).result()
    left = [entry for entry in await _listed(lab) if entry.get("sessionId") == session]
    expect(not left, "a deleted session is listed", left)


@agent_check("ACP1-CLOSE-02", "ACP1-CLOSE-03")
async def closed_session_is_closed(lab: Lab) -> None:
    """`session/close` for an open session succeeds, and the agent continues."""
    await lab.require("sessionCapabilities.close")
    conversation, _ = await lab.session()
    session = (await lab.new_session(conversation))["sessionId"]
    (await conversation.ask("session/close", {"sessionId": session})).result()
    await conversation.fence("session/close")


OPTIONAL: Final[tuple[tuple[str, str, Message], ...]] = (
    ("loadSession", "session/load", {"sessionId": NOWHERE, "mcpServers": []}),
    ("sessionCapabilities.resume", "session/resume", {"sessionId": NOWHERE}),
    ("sessionCapabilities.list", "session/list", {}),
    ("sessionCapabilities.delete", "session/delete", {"sessionId": NOWHERE}),
    ("sessionCapabilities.close", "session/close", {"sessionId": NOWHERE}),
)


async def _opened(lab: Lab) -> Message:
    await lab.session()
    return lab.opened


def _options(fields: Message) -> list[dict[str, Any]]:
    options = fields.get("configOptions")
    return [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []


def _require_options(opened: Message) -> list[dict[str, Any]]:
    options = _options(opened)
    if not options:
        raise Skip("its sessions have no config options")
    return options


async def _listed(lab: Lab) -> list[dict[str, Any]]:
    await lab.require("sessionCapabilities.list")
    conversation, _ = await lab.session()
    return await _list(conversation)


async def _list(conversation: Conversation) -> list[dict[str, Any]]:
    sessions = (await conversation.ask("session/list", {})).fields().get("sessions")
    return [s for s in sessions if isinstance(s, dict)] if isinstance(sessions, list) else []


CHECKS: Final[tuple[AgentCheck, ...]] = (
    new_sessions_have_ids_of_their_own,
    relative_folder_is_refused,
    prompt_to_no_session_is_refused,
    cancel_without_a_turn_is_ignored,
    modes_are_well_formed,
    current_mode_can_be_set,
    unknown_mode_is_refused,
    modes_are_offered_as_an_option_too,
    every_option_has_a_value,
    boolean_options_are_not_sent_unasked,
    setting_an_option_returns_all_of_them,
    unknown_option_is_refused,
    methods_not_advertised_are_refused,
    loading_no_session_is_refused,
    list_of_sessions_is_a_list,
    listed_sessions_are_well_formed,
    listing_changes_nothing,
    invalid_cursor_is_refused,
    deleting_twice_succeeds,
    deleted_session_is_not_listed,
    closed_session_is_closed,
)

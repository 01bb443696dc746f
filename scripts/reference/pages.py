"""The reference pages with a generated part, and what each part describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import dragoman
from dragoman import agent
from dragoman.agent import commands, settings
from dragoman.client import acp, budgets, conversation, inquiries, permissions, results
from dragoman.client.acp import inbound, session
from dragoman.dialects.acp.v1.methods import Method
from dragoman.dialects.discovery import Cache
from dragoman.events import parts
from dragoman.events.words import Outcome
from dragoman.transports.base import Stream
from dragoman.transports.listener import Listener
from dragoman.wire.peer import Noise, Stray
from scripts.reference import event_values, settings_page, table_pages
from scripts.reference.members import first_sentence
from scripts.reference.python_names import (
    Chapter,
    chapters,
    constructor,
    functions,
    text,
    types,
    with_options,
)
from scripts.reference.toml_keys import tables

REFERENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
MARK: Final = "<!-- from the code -->\n"

SESSION_SETTINGS: Final = (
    *("modes", "models", "model_choices", "config_options"),
    *("set_mode", "switch_mode", "set_model", "set_option"),
)

CONVERSATION: Final = (
    Chapter(
        conversation.Peer,
        "peer",
        {
            "The agent": ("info", "dialect", "capabilities", "workspace"),
            "Sessions": ("session", "list_sessions", "delete_session"),
            "Login": ("auth_methods", "authenticate", "logout"),
            "Callbacks": ("on_event", "answer_with", "inquire_with"),
            "The end": ("aclose",),
        },
        hidden=("client", "open", "on_open", "require"),
        notes={
            "dialect": "The name of the dialect that the agent speaks.",
            "info": "The agent's own name and version.",
            "capabilities": "What the agent can do.",
            "auth_methods": "The ways to log in that the agent offers.",
            "workspace": "The directory in which the agent works.",
        },
    ),
    Chapter(
        conversation.Conversation,
        "session",
        {
            "Prompts": ("prompt", "ask", "steer", "turn"),
            "Settings": ("model_choices", "set_mode", "set_model", "set_option"),
            "The session": ("id", "replayed", "wait_replayed", "answer_meta", "close"),
        },
        hidden=("implicit",),
        notes={
            "id": "The agent's id of the session.",
            "set_mode": "Switch the mode.",
            "set_model": "Switch the model.",
            "set_option": "Change an option of the session.",
        },
    ),
    Chapter(
        conversation.ConversationTurn,
        "turn",
        {
            "The stream": ("ready", "wait", "cancel", "cancelling"),
            "The result": (
                *("result", "max_text_size", "approvals", "denials", "unsent", "answer_meta"),
            ),
        },
        hidden=("begin", "session", "state", "untaken"),
    ),
    Chapter(
        conversation.SessionSummary,
        "summary",
        notes={
            "id": "The agent's id of the session.",
            "cwd": "The working directory.",
            "title": "The title, if the agent gave it one.",
            "updated_at": "The time of the last change, as the agent wrote it.",
            "created_at": "The time when the session was created, as the agent wrote it.",
        },
    ),
)

CLIENT: Final = (
    Chapter(
        acp.AcpClient,
        "client",
        {
            "The agent": ("agent", "hello", "can", "require", "require_content"),
            "Sessions": (
                *("new_session", "load_session", "resume_session", "fork_session"),
                *("sessions", "list_sessions", "delete_session"),
            ),
            "Login": ("authenticate", "logout", "login_command"),
            "Extensions": ("call_extension", "notify_extension"),
            "Start and end": ("start", "aclose"),
        },
        hidden=("options", "connection", "events", "feed", "budgets", "conversations"),
    ),
    Chapter(
        acp.ClientOptions,
        "",
        {
            "Answers to the agent": (
                *("permit", "guard", "inquire", "visits", "elicit", "on_url_done"),
            ),
            "What the agent may do through the client": (
                *("read_files", "write_files", "terminals", "missing_file_is_empty"),
            ),
            "Limits": ("budgets", "max_line_size"),
            "Callbacks": ("on_event", "on_noise", "extension"),
            "The handshake": ("name", "title", "version", "any_version", "unstable"),
            "Login and sessions": (
                *("login_hint", "terminal_login", "starting_mode", "session_meta"),
            ),
            "Capabilities": ("offered",),
        },
    ),
    Chapter(
        acp.Session,
        "session",
        {
            "Prompts": ("prompt", "ask", "turn", "unusable"),
            "Settings": SESSION_SETTINGS,
            "What the agent reported": (
                *("id", "commands", "info", "usage", "answer_meta"),
                *("on_update", "outside", "outside_dropped"),
            ),
            "History": ("replayed", "wait_replayed"),
            "The workspace": ("cwd", "additional_directories", "serving"),
            "The end": ("close", "release"),
        },
        hidden=(
            *("calls", "began_here", "questions", "record", "place", "client", "let_go"),
            *("implicit", "steer", "set_config_option"),
        ),
    ),
    Chapter(
        acp.Turn,
        "turn",
        {
            "The stream": ("begin", "ready", "wait", "cancel", "cancelling"),
            "The result": (
                *("result", "response", "max_text_size", "approvals", "denials"),
                *("unsent", "answer_meta"),
            ),
        },
        hidden=("session", "state", "untaken"),
    ),
    Chapter(results.Result, "result"),
)

DECISIONS: Final = (
    Chapter(permissions.Question, "question"),
    Chapter(permissions.Answer),
    Chapter(permissions.Chosen),
    Chapter(permissions.Denial, "denial"),
    Chapter(inquiries.Inquiry, "inquiry"),
    Chapter(inquiries.Reply),
    Chapter(inbound.Extension, "extension"),
)

KIT: Final = (
    Chapter(
        agent.Turn,
        "turn",
        {
            "The prompt": ("text", "prompt", "blocks", "command", "meta", "session", "client"),
            "The answer": ("say", "think", "plan", "notice", "echo", "update"),
            "Tools and permissions": ("tool", "ask_permission"),
            "Files and commands of the client": ("read_file", "write_file", "terminal"),
            "Usage and settings": (*("usage", "tokens", "title", "commands", "mode", "option"),),
            "The end": ("cancelled", "stopped", "over", "ended"),
        },
    ),
    Chapter(agent.ToolCall, "tool"),
    Chapter(
        agent.Session,
        "session",
        {
            "The conversation": (
                *("id", "cwd", "additional_directories", "roots", "mcp_servers"),
                *("client", "meta", "turn", "state"),
            ),
            "Modes and options": (
                *("mode", "options", "choices", "choose_from", "switch_mode", "set_option"),
                *("mode_state", "config_options"),
            ),
        },
    ),
    Chapter(agent.ClientSide, "client"),
    Chapter(agent.Terminal, "terminal"),
)

AGENT: Final = Chapter(
    agent.Agent,
    "agent",
    {
        "Handlers": (
            *("prompt", "command", "new_session", "load_session", "resume_session"),
            *("list_sessions", "close_session", "delete_session", "set_mode", "set_option"),
            *("authenticate", "logout", "extension", "extension_notification"),
        ),
        "Running": ("run", "serve_stdio", "serve", "serve_unix", "serve_websocket"),
        "Attributes": (
            *("dialect", "versions", "choices", "auth_methods", "secret_methods"),
            *("capabilities",),
        ),
    },
    hidden=("info", "handlers"),
)


def _front_door() -> Iterator[str]:
    yield from ("", "## All names", "", "| name | what it is |", "|---|---|")
    for name in dragoman.__all__:
        what = first_sentence(inspect.getdoc(getattr(dragoman, name))).replace("|", "&#124;")
        yield f"| [`{name}`]({_described_in(name)}) | {what} |"
    yield from with_options(dragoman.connect)
    yield from chapters(CONVERSATION)
    yield from with_options(dragoman.delegate)
    yield from types([], [Cache])


def _described_in(name: str) -> str:
    """Return the place that describes a name of the package."""
    thing = getattr(dragoman, name)
    home = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    named = "" if inspect.ismodule(thing) else f"#{name.lower()}"
    match home.split(".")[1:]:
        case ["agent", *_]:
            return f"agent.md#{name.lower().removeprefix('blocking')}"
        case ["errors", *_]:
            return "errors.md"
        case ["events", *_]:
            return "events.md"
        case ["dialects", *_]:
            return "acp-client.md"
        case ["client", "conversation"] | ["delegation", "execution"]:
            return named
        case ["client", *_]:
            return f"acp-client.md{named if inspect.isclass(thing) else '#functions-for-permit'}"
        case ["runs", *_]:
            return "#connect"
    return "../how-to/delegate-from-python.md"


def _client() -> Iterator[str]:
    yield from ("", "## Connect")
    yield from functions([acp.open_agent, acp.use_agent], "client")
    yield from chapters(CLIENT)
    yield from chapters([Chapter(budgets.Budgets, hidden=("grace_after",))])
    yield from ("", "## Functions for permit", "")
    yield "For `permit` and `guard`: use one of these, or write your own, plain or `async`."
    yield from functions([permissions.approve_all, permissions.approve_reads, permissions.deny_all])
    yield from chapters(DECISIONS)
    yield from types(
        [
            (permissions, "Permit"),
            (permissions, "Decision"),
            (inquiries, "Inquire"),
            (session, "Prompt"),
            (inbound, "Elicit"),
        ],
        [
            inbound.Extension,
            Noise,
            Stray,
            Stream,
            parts.Choice,
            Outcome,
            parts.Usage,
            parts.Failure,
        ],
    )


def _kit() -> Iterator[str]:
    yield from ("", "## Agent", "", f"`{constructor(agent.Agent)}`")
    yield from text(agent.Agent.__doc__)
    yield from _without_heading(AGENT)
    yield from chapters(KIT)
    yield from ("", "## SessionSettings", "", f"`{constructor(settings.SessionSettings)}`")
    yield from text(settings.SessionSettings.__doc__)
    yield from ("", "Import it from `dragoman.agent.settings`.")
    yield from types(
        [(settings, "Option")],
        [commands.Command, Method, Stream, Listener],
    )


def _without_heading(chapter: Chapter) -> Iterator[str]:
    described = list(chapters([chapter]))
    yield from described[described.index("### " + next(iter(chapter.groups))) - 1 :]


PAGES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "configuration.md": settings_page.lines,
    "descriptor.md": lambda: tables(table_pages.DESCRIPTOR),
    "policy.md": lambda: tables(table_pages.POLICY),
    "events.md": event_values.lines,
    "names.md": _front_door,
    "acp-client.md": _client,
    "agent.md": _kit,
}


def updated(name: str) -> str:
    """Return the text of a page with its generated parts as the code has them."""
    head, mark, _ = (REFERENCE / name).read_text("utf-8").partition(MARK)
    if name == "events.md":
        head = _with_index(head)
    return head + mark + "\n".join(PAGES[name]()) + "\n"


def _with_index(head: str) -> str:
    """Return the start of the page of events with its table of all events as the code has it."""
    index = list(event_values.index())
    lines = head.splitlines(keepends=True)
    first = lines.index(index[0] + "\n")
    after = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    return "".join([*lines[:first], "\n".join(index) + "\n", *lines[after:]])


__all__ = ["PAGES", "REFERENCE", "updated"]

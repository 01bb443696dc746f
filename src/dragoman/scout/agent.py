"""scout as an ACP agent: its handlers, and the course of a turn.

A prompt or a command becomes an intent (`questions`), the intent an answer (`answers`), and the
answer is sent and remembered (`store`). A turn whose question cannot be answered ends as a refusal,
with a text that says which questions scout answers. Modules that a turn needs are imported by the
first turn, so that start-up is quick.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import FileFailed, RemoteError, UsageError
from dragoman.scout.commands import COMMANDS, ScoutCommand
from dragoman.version import __version__
from dragoman.wire import codes

if TYPE_CHECKING:
    from dragoman.scout.questions import Intent
    from dragoman.scout.store import SessionFiles
    from dragoman.scout.turn_context import ScoutAnswer

PIECE_SIZE: Final = 600
"""Approximate number of characters per chunk of an answer: a client shows chunks as they arrive."""


class Scout:
    """The handlers of the agent, and the session store that they share."""

    def __init__(self, store: SessionFiles | None = None) -> None:
        self._store = store

    @property
    def store(self) -> SessionFiles:
        if self._store is None:
            from dragoman.scout.store import SessionFiles

            self._store = SessionFiles()
        return self._store

    # -- sessions

    def new_session(self, session: Session) -> None:
        if not os.path.isdir(session.cwd):
            raise RemoteError(codes.INVALID_PARAMS, f"there is no directory {str(session.cwd)!r}")
        self.store.begin(session.id, str(session.cwd))

    async def load_session(self, session: Session, replay: Turn) -> None:
        for entry in await self._restore(session):
            await replay.echo(entry.question)
            await replay.say(entry.answer)

    async def resume_session(self, session: Session) -> None:
        await self._restore(session)

    async def _restore(self, session: Session) -> list[Any]:
        from dragoman.rpc.tasks import in_thread

        known = await in_thread("", lambda _: self.store.load(session.id))
        if known is None:
            raise RemoteError(
                codes.NOT_FOUND, "there is no such session", {"sessionId": session.id}
            )
        session.state.titled = bool(known.entries)
        worth = (entry.answer for entry in reversed(known.entries) if entry.answered and entry.keep)
        session.state.last = next(worth, "")
        return known.entries

    def list_sessions(self, request: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
        from dragoman.scout.store import PAGE_SIZE, timestamp

        known = self.store.listed(request.cwd)
        cursor = request.cursor or "0"
        if not cursor.isdecimal() or len(cursor) > 9:
            raise RemoteError(codes.INVALID_PARAMS, f"invalid cursor {cursor[:40]!r}")
        start = int(cursor)
        page = known[start : start + PAGE_SIZE]
        more = start + PAGE_SIZE < len(known)
        return acp.ListSessionsResponse(
            sessions=[
                acp.SessionInfo(
                    session_id=one.id,
                    cwd=one.cwd,
                    title=one.title,
                    updated_at=timestamp(one.updated_at),
                )
                for one in page
            ],
            next_cursor=str(start + PAGE_SIZE) if more else None,
        )

    def delete_session(self, session_id: str) -> None:
        try:
            self.store.delete(session_id)
        except OSError as error:
            problem = f"the session cannot be deleted: {error.strerror or error}"
            raise RemoteError(codes.INTERNAL_ERROR, problem) from error

    # -- turns

    async def prompt(self, turn: Turn) -> str | None:
        from dragoman.scout.questions import understand

        intent = understand(turn.text, _mentions(turn))
        return await self._respond(turn, turn.text, intent)

    async def command(self, command: ScoutCommand, turn: Turn, words: str) -> str | None:
        from dragoman.scout.questions import of_command

        written = f"/{command.name} {words}".strip()
        intent = of_command(command.name, words)
        if intent is None:
            usage = f"/{command.name} {command.hint}".strip()
            text = (
                f"`/{command.name}` cannot use this input. Usage: `{usage}`, "
                f"such as `{command.example}`."
            )
            return await self._end(turn, written, text, answered=False)
        return await self._respond(turn, written, intent)

    async def _respond(self, turn: Turn, asked: str, intent: Intent) -> str | None:
        from dragoman.scout import answers
        from dragoman.scout.file_reader import FileReader
        from dragoman.scout.questions import Save
        from dragoman.scout.turn_context import TurnContext

        state = turn.session.state
        intent = _resolved(intent, getattr(state, "symbol", ""), getattr(state, "path", ""))
        await turn.think(_understood(intent))
        try:
            reader = FileReader(str(turn.session.cwd))
        except UsageError as error:
            return await self._end(turn, asked, f"I cannot search: {error}.", answered=False)
        context = TurnContext(turn, reader)
        found: ScoutAnswer = await answers.answer(context, intent, getattr(state, "last", ""))
        if found.answered:
            await context.step(last=True)
        state.symbol = found.symbol or getattr(state, "symbol", "")
        state.path = found.path or getattr(state, "path", "")
        keep = not isinstance(intent, Save)
        return await self._end(turn, asked, found.text, answered=found.answered, keep=keep)

    async def _end(
        self, turn: Turn, asked: str, text: str, *, answered: bool, keep: bool = True
    ) -> str | None:
        from dragoman.rpc.tasks import in_thread
        from dragoman.scout.store import RememberedTurn, title_of

        state = turn.session.state
        if not getattr(state, "titled", False):
            state.titled = True
            await turn.title(title_of(asked))
        if keep and answered:
            state.last = text
        for piece in _pieces(text):
            await turn.say(piece)
        entry = RememberedTurn(asked, text, answered, keep)
        with suppress(FileFailed):
            # A session that cannot be stored continues.
            await in_thread("", lambda _: self.store.add(turn.session.id, entry), changes_disk=True)
        return None if answered else acp.StopReason.REFUSAL


def build(store: SessionFiles | None = None) -> Agent:
    """Return the agent, ready to run."""
    scout = Scout(store)
    agent = Agent("scout", version=__version__, title="Scout", embedded_context=True)
    agent.prompt(scout.prompt)
    agent.new_session(scout.new_session)
    agent.load_session(scout.load_session)
    agent.resume_session(scout.resume_session)
    agent.list_sessions(scout.list_sessions)
    agent.delete_session(scout.delete_session)
    for command in COMMANDS:
        offer = agent.command(command.name, command.description, hint=command.hint or None)
        offer(functools.partial(scout.command, command))
    return agent


def _resolved(intent: Intent, symbol: str, path: str) -> Intent:
    """Return an intent in which "it" is replaced by the subject of the previous question."""
    from msgspec.structs import replace

    from dragoman.scout.questions import Definition, ReadPath, Uses, is_pronoun

    match intent:
        case Definition(name) | Uses(name) if is_pronoun(name) and symbol:
            return replace(intent, symbol=symbol)
        case ReadPath(name) if is_pronoun(name) and path:
            return replace(intent, path=path)
        case _:
            return intent


def _understood(intent: Intent) -> str:
    """Describe how a question was understood."""
    named = [
        f"{key}: {value}"
        for key in intent.__struct_fields__
        if key in ("symbol", "path") and (value := getattr(intent, key))
    ]
    about = (type(intent).__doc__ or "").partition(".")[0]
    return f"{about} ({', '.join(named)})." if named else f"{about}."


def _mentions(turn: Turn) -> list[str]:
    """Return the paths of files attached to a prompt."""
    links = [block.uri for block in turn.blocks(acp.ResourceLink)]
    links += [block.resource.uri for block in turn.blocks(acp.EmbeddedResource)]
    found: list[str] = []
    for link in links:
        try:
            parts = urlsplit(link)
        except ValueError:
            continue
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            found.append(unquote(parts.path))
    return found


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces, split between lines."""
    piece = ""
    for line in text.splitlines(keepends=True):
        if piece and len(piece) + len(line) > PIECE_SIZE:
            yield piece
            piece = ""
        piece += line
    if piece:
        yield piece

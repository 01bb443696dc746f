"""The session of `dragoman chat`: its turns, and the commands that change or replace it.

A session that replaces another one gets a summary of the conversation (`runs.brief`), unless it was
started with /new or already has a history. Lines are parsed in `cli.chat_commands`; a single
session is in `cli.prompt_session`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from dragoman.cli import chat_commands
from dragoman.cli.chat_commands import OwnCommand, Suggestion
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.output import session_pages
from dragoman.cli.output.renderer import Renderer, TurnReport
from dragoman.cli.output.tables import write_table
from dragoman.cli.output.terminal import width_of
from dragoman.cli.prompt_session import NOT_BEGUN, PromptSession, talking
from dragoman.cli.read_input import blocks, tell_missing
from dragoman.cli.run_plan import RunOptions, RunPlan, plan_of, show_of
from dragoman.errors import DragomanError, UsageError
from dragoman.events.parts import Block, Usage
from dragoman.rpc.tasks import in_thread
from dragoman.runs import model_choice
from dragoman.runs.brief import brief_for, summary_of
from dragoman.runs.conversation_summary import ConversationSummary
from dragoman.runs.sessions import RESTORED, find_session, merge, recall
from dragoman.store import SessionRecord, root_of
from dragoman.store.open import open_store

if TYPE_CHECKING:
    from dragoman.cli.chat_input import ChatInput

LISTED_SESSIONS: Final = 20
"""Maximum number of sessions listed by /sessions, last used first."""


def _stored_summary(key: str) -> ConversationSummary | None:
    with open_store(read_only=True) as store:
        record = store.session(key)
    return None if record is None else summary_of(record)


class Chat:
    """The current session of a chat, which commands can replace. Use with ``async with``."""

    session: PromptSession

    def __init__(
        self,
        plan: RunPlan,
        live: CommandLoop,
        show: Renderer,
        options: RunOptions,
        *,
        interactive: bool,
    ) -> None:
        self.plan = plan
        self.live = live
        self.show = show
        self.interactive = interactive
        self.over = False
        """Whether the user wants to leave."""
        self.editor: ChatInput | None = None
        if options.peer is None and options.command is None:
            # The default peer remains the one chosen at the start.
            options = structs.replace(options, peer=plan.name)
        self._options = options
        self._stack = AsyncExitStack()
        self._memory: ConversationSummary = ConversationSummary()
        self._used: list[Usage | None] = []
        self._in_command = False
        self._in_turn = False

    async def __aenter__(self) -> Chat:
        await self._open(self.plan, self.show)
        opened = self.session.run.opened
        if self.interactive and opened.context == RESTORED:
            # Another peer may take over and needs the conversation before this chat.
            memory = await in_thread(opened.key, lambda _: _stored_summary(opened.key))
            if memory is not None:
                self._memory = memory
                self._remember()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    @property
    def title(self) -> str:
        """The agent's own title or name; the peer's name if it reports none."""
        info = self.session.run.peer.info
        return info.title or info.name or self.plan.name

    # -- prompts

    def content(self, text: str) -> list[Block]:
        """Return the content blocks of a prompt, and report mentioned files that do not exist.
        Raises `UsageError` if the prompt cannot be sent."""
        made = blocks(
            text,
            typed=text,
            images=(),
            workspace=self.plan.workspace,
            can=self.session.run.peer.capabilities,
            peer=self.plan.name,
        )
        tell_missing(text, self.plan.workspace, self.show.notice)
        return made

    async def turn(self, text: str, content: Sequence[Block]) -> TurnReport:
        """Run a turn with `content`, the content of the prompt `text`. If there is a part of the
        conversation that the agent has not seen, a summary of it comes first."""
        brief = brief_for(self.plan.name, self._memory)
        if brief is not None:
            self.show.notice(f"{self.plan.name} gets a summary of the conversation: {brief}")
            content = [brief.block(self.session.run.peer.capabilities), *content]
        self._memory.began(text, self.plan.name)
        try:
            report = await self._turn(content)
        except UsageError:
            if brief is not None:
                # Nothing was sent, so the next prompt must include the summary.
                self._memory.forgot(self.plan.name)
            raise
        self._used.append(report.result.usage)
        return report

    async def _turn(self, content: Sequence[Block]) -> TurnReport:
        """Run a turn. Raises `UsageError` if Ctrl-C at a terminal ends it before its prompt is
        sent."""
        self._in_turn = True
        try:
            return await self.session.turn(content)
        except asyncio.CancelledError:
            if not self.interactive or self.session.run.seen.prompted or not self._resumes():
                raise
            raise UsageError(NOT_BEGUN) from None
        finally:
            self._in_turn = False

    def failed(self, error: DragomanError) -> None:
        """Show why a line was rejected."""
        chat_commands.show_refusal(error, self.show, interactive=self.interactive)

    def interrupted(self, count: int) -> None:
        """Callback for interrupts, called with their number. An interrupt ends the running command
        or turn, even before the prompt is sent, and otherwise acts like Ctrl-C at the prompt. After
        a signal other than Ctrl-C, it ends the chat."""
        run = self.session.run
        before_prompt = self._in_turn and not run.seen.prompted
        if self._in_command or before_prompt or run.in_turn or self.live.terminated:
            self.session.interrupted(count)
            return
        self.live.calm()
        if self.editor is not None:
            self.editor.interrupt()

    # -- commands

    async def carry_out(self, line: str) -> str | None:
        """Execute a line if it is one of our commands, and return None; otherwise return it as a
        prompt.

        Raises `UsageError` for an unknown command, or one that cannot be executed.
        """
        if not self.interactive:
            meant = chat_commands.piped_meaning(line)
        else:
            commands = self.session.run.seen.view.commands
            meant = chat_commands.meaning_of(line, [command.name for command in commands])
        if isinstance(meant, str):
            return meant
        self._in_command = True
        try:
            await self._run_command(meant)
        except asyncio.CancelledError:
            if not self._resumes():
                raise
            self.show.notice("cancelled")
        finally:
            self._in_command = False
        return None

    def _resumes(self) -> bool:
        """If Ctrl-C, which ends only a command or a turn, caused the cancellation that was just
        caught, undo the cancellation and return True. Return False if the chat has to end."""
        task = asyncio.current_task()
        if not self.live.interrupts or self.live.terminated or task is None:
            return False
        while task.uncancel():
            pass
        self.live.calm()
        self._listen()
        return True

    async def _run_command(self, command: OwnCommand) -> None:
        name, argument = command
        match name:
            case "help":
                theirs = self.session.run.seen.view.commands
                width = width_of(sys.stderr if self.interactive else sys.stdout)
                keys = self.editor is not None
                self._put(chat_commands.help_page(theirs, keys=keys, width=width))
            case "model":
                await self._model(argument)
            case "mode":
                await self._mode(argument)
            case "peer":
                await self._peer(argument)
            case "new":
                await self._new(argument)
            case "sessions":
                await self._sessions(argument)
            case "cost":
                self._put(chat_commands.cost_page(self._used))
            case "quit":
                self.over = True

    async def _model(self, name: str) -> None:
        run = self.session.run
        conversation, view = run.opened.conversation, run.seen.view
        if not name:
            known = [(c.value, c.name) for c in model_choice.model_choices(conversation, view)]
            self._put(chat_commands.choice_page("model", known, model_choice.model_in_use(view)))
            return
        way = run.request.enforced.way
        if not model_choice.offers_choice(view) and model_choice.with_flag(way, name) is not None:
            # The agent takes a model only from its command line.
            await self._move(model=name)
            return
        await model_choice.use_model(
            conversation, view, name, peer=self.plan.name, on_notice=self.show.notice
        )
        self._keep(model=name)
        self.show.notice(f"model {model_choice.model_in_use(view)}")

    async def _mode(self, name: str) -> None:
        run = self.session.run
        view = run.seen.view
        choices = model_choice.mode_choices(view)
        if not name:
            self._put(
                chat_commands.choice_page("mode", [(c.value, c.name) for c in choices], view.mode)
            )
            return
        mode = model_choice.match(name, choices, peer=self.plan.name, what="mode")
        # Raises `PolicyNotEnforced` for a mode in which the agent does not ask.
        enforced = self._planned(mode=mode).enforced
        await run.opened.conversation.set_mode(mode)
        model_choice.require_mode(view, mode, peer=self.plan.name)
        run.request = structs.replace(run.request, enforced=enforced, mode=mode)
        self._keep(mode=mode)
        self.show.notice(f"mode {mode}")

    async def _peer(self, name: str) -> None:
        if not name:
            more = "`dragoman peers` lists all of them.\n"
            self._put(
                chat_commands.choice_page("peer", list(self._peers()), self.plan.name, more=more)
            )
            return
        if name == self.plan.name:
            self.show.notice(
                f"you are already chatting with {name}; /new starts a new session with it"
            )
            return
        # Settings chosen for one agent do not apply to another.
        await self._move(
            peer=name, command=None, model=None, mode=None, dialect=None, any_version=False
        )

    def _peers(self) -> Iterator[tuple[str, str]]:
        from dragoman.runs.context import load_context

        place = load_context(self.plan.workspace)
        for name in place.catalogue.names:
            if place.is_enabled(name):
                yield name, place.catalogue.get(name).title

    async def _move(self, **changes: Any) -> None:
        """Continue in a new session, with `changes` to the options. It gets a summary of the
        conversation with the next prompt."""
        changes = {"session": None, **changes}
        plan = self._planned(**changes)
        before = await self._switch(plan, changes)
        self._memory.forgot(plan.name)
        told = "with your next prompt it gets a summary of the conversation"
        self.show.notice(
            f"chatting with {self.title}" + (f"; {told}" if self._memory.count else "")
        )
        await self._leave(before)

    async def _new(self, name: str) -> None:
        session = name or None
        plan = self._planned(session=session)
        if session is not None:
            record = await in_thread(
                session, lambda _: recall(session, peer=plan.name, folder=plan.workspace)
            )
            if record is not None:
                raise UsageError(
                    f"session {session!r} already exists; `/sessions {session}` continues it"
                )
        before = await self._switch(plan, {"session": session})
        self._memory = ConversationSummary()
        self._remember()
        named = f" {session}" if session is not None else ""
        self.show.notice(f"a new session{named} with {self.title}")
        await self._leave(before)

    async def _sessions(self, word: str) -> None:
        if not word:
            await self._list_sessions()
            return
        record = await in_thread(word, lambda _: self._found(word))
        if record.key == self.session.run.opened.key:
            self.show.notice("you are already in this session")
            return
        changes: dict[str, Any] = {"session": record.key}
        if record.peer != self.plan.name:
            changes |= {"peer": record.peer, "command": None, "model": None, "mode": None}
            changes |= {"dialect": None, "any_version": False}
        memory = await in_thread(record.key, lambda _: summary_of(record))
        before = await self._switch(self._planned(**changes), changes)
        self._memory = memory
        self._remember()
        self.show.notice(f"in the session {record.name or record.key} with {self.title}")
        await self._leave(before)

    def _found(self, word: str) -> SessionRecord:
        with open_store(read_only=True) as store:
            return find_session(store, word, root=root_of(self.plan.workspace))

    async def _list_sessions(self) -> None:
        stored, prompts = await in_thread("sessions.db", lambda _: self._listed())
        if not stored:
            self.show.notice("this project has no stored sessions yet")
            return
        listed, now = merge(stored), time.time()
        write_table(
            session_pages.HEAD,
            [session_pages.as_cells(each, now, prompts) for each in listed],
            drop=session_pages.DROP,
            stream=sys.stderr,
        )

    def _listed(self) -> tuple[list[SessionRecord], dict[str, str]]:
        """Return the latest sessions of this project, and their first prompts by session key."""
        stored = self._stored()
        with open_store(read_only=True) as store:
            return stored, store.first_prompts(each.key for each in stored)

    def _stored(self) -> list[SessionRecord]:
        """Return at most `LISTED_SESSIONS` sessions of this project, last used first."""
        with open_store(read_only=True) as store:
            root = str(root_of(self.plan.workspace))
            return list(store.sessions(root=root, limit=LISTED_SESSIONS))

    def _put(self, text: str) -> None:
        chat_commands.show_page(text, self.show, interactive=self.interactive)

    # -- sessions

    def _planned(self, **changes: Any) -> RunPlan:
        return plan_of(structs.replace(self._options, **changes))

    def _keep(self, **changes: Any) -> None:
        """Use these options for later sessions as well."""
        self._options = structs.replace(self._options, **changes)

    async def _switch(self, plan: RunPlan, changes: dict[str, Any]) -> AsyncExitStack:
        """Open the session of a plan, use `changes` for later sessions as well, and return the exit
        stack of the previous session. The caller closes that stack (`_leave`) as its last step,
        because Ctrl-C can interrupt the closing. If the new session cannot be opened, the error is
        raised and the chat stays in the current one."""
        before, session = self._stack, self.session
        self._stack = AsyncExitStack()
        try:
            await self._open(plan, show_of(plan, self._options))
        except BaseException:
            self._stack = before
            self._attach(session)
            raise
        self._keep(**changes)
        return before

    async def _leave(self, before: AsyncExitStack) -> None:
        try:
            await before.aclose()
        except DragomanError as error:
            self.show.notice(f"the previous session did not close cleanly: {error}")

    async def _open(self, plan: RunPlan, show: Renderer) -> None:
        show.tells_jobs = False
        session = await self._stack.enter_async_context(talking(plan, self.live, show))
        session.wait_for_prompt()
        show.lost |= self.show.lost
        self.plan, self.show = plan, show
        self._attach(session)

    def _attach(self, session: PromptSession) -> None:
        """Make a session the current one: it gets the interrupts, and its turn is cancelled if the
        output is closed."""
        self.session = session
        self._remember()
        session.show.on_broken = session.hang_up
        self._listen()

    def _listen(self) -> None:
        # A pending interrupt is already cancelling us and must not do so twice.
        if not self.live.interrupts:
            self.live.listen(self.interrupted)

    def _remember(self) -> None:
        self.session.on_event = self._memory.event

    # -- the line editor

    def redacted(self, text: str) -> str:
        """Return a prompt with secrets redacted, for the history."""
        from dragoman.config.secrets import redactor

        return redactor((*self.plan.way.inherit, *self.plan.env)).text(text)

    def suggestions(self, text: str) -> Iterable[Suggestion]:
        """Return the completions for the text before the cursor."""
        return chat_commands.suggestions(
            text,
            theirs=self.session.run.seen.view.commands,
            names=self._names,
            workspace=self.plan.workspace,
        )

    def _names(self, command: str) -> Iterable[tuple[str, str]]:
        """Return the names that can follow a command, each with a description."""

        run = self.session.run
        match command:
            case "model":
                choices = model_choice.model_choices(run.opened.conversation, run.seen.view)
                return [(c.value, c.name) for c in choices]
            case "mode":
                return [(c.value, c.name) for c in model_choice.mode_choices(run.seen.view)]
            case "peer":
                return self._peers()
            case "sessions":
                records = self._stored()
                words = (word for each in records for word in (each.name, each.key) if word)
                return [(word, "") for word in dict.fromkeys(words)]
            case _:
                return ()

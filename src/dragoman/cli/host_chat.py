"""`chat --host`: a chat with an agent on another machine, where each turn is a job.

The jobs belong to one remote session until /new chooses another, and a turn continues if the
connection is lost. The loop and the line editor are those of `cli.chat`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import structs

from dragoman.broker.client.ssh_command import Host
from dragoman.broker.host_protocol import HostPrompt
from dragoman.cli import chat_commands
from dragoman.cli.chat import read_lines
from dragoman.cli.chat_commands import Suggestion
from dragoman.cli.command_loop import CommandLoop, perform
from dragoman.cli.host_run import HostTurns, failed, prepared, prompt_of
from dragoman.cli.output.renderer import Renderer, TurnReport
from dragoman.cli.output.terminal import is_interactive, width_of
from dragoman.cli.prompt_session import NOT_BEGUN
from dragoman.config.secrets import redactor
from dragoman.errors import CallCancelled, DragomanError, UsageError
from dragoman.events.parts import Usage
from dragoman.store.records import new_job_id

HERE: Final = ("help", "new", "model", "mode", "cost", "quit")
"""Chat commands that work with a remote session."""


def chat(host: str, *, peer: str | None, **given: Any) -> int:
    """Run `dragoman chat --host`. Returns the exit code."""
    show, there = prepared(host, given)
    live = CommandLoop()
    try:
        first = prompt_of(there, peer=peer, show=show, no_stdin=True, **given)
        return perform(live, lambda: _converse(there, live, show, first))
    except DragomanError as error:
        return failed(show, error)


async def _converse(host: Host, live: CommandLoop, show: Renderer, first: HostPrompt) -> int:
    async with HostTurns(host, live, show) as turns:
        chat = HostChat(turns, live, show, first)
        return await read_lines(chat)


class HostChat:
    """A chat whose session runs on a host. It has the attributes of `chat_session.Chat` that the
    loop in `cli.chat` uses."""

    def __init__(
        self, turns: HostTurns, live: CommandLoop, show: Renderer, first: HostPrompt
    ) -> None:
        self.live = live
        self.show = show
        self.interactive = is_interactive()
        self.over = False
        self.editor: Any = None
        show.tells_jobs = False
        self._turns = turns
        self._next = structs.replace(first, lasting=True)
        self._used: list[Usage | None] = []

    @property
    def title(self) -> str:
        return f"{self._next.peer or 'the default peer'} on {self._turns.host.name}"

    def content(self, text: str) -> Sequence[Any]:
        """Return no content: files that a prompt names are read on the host."""
        return ()

    async def turn(self, text: str, content: Sequence[Any]) -> TurnReport:
        prompt = structs.replace(self._next, job=new_job_id(), words=[text])
        if prompt.peer is None:
            prompt.peer, prompt.words = text, []
        self.live.listen(self._turns.interrupted)
        try:
            report = await self._turns.turn(prompt)
        except CallCancelled as error:
            self.live.calm()
            raise UsageError(NOT_BEGUN) from error
        finally:
            self.live.listen(self.interrupted)
        # The first turn determines the session and the peer of the following ones.
        self._next = structs.replace(self._next, session=report.session_key, peer=report.peer)
        self._used.append(report.result.usage)
        return report

    def failed(self, error: DragomanError) -> None:
        chat_commands.show_refusal(error, self.show, interactive=self.interactive)

    def interrupted(self, count: int) -> None:
        if self._turns.job is not None or self.live.terminated:
            self._turns.interrupted(count)
            return
        self.live.calm()
        if self.editor is not None:
            self.editor.interrupt()

    async def carry_out(self, line: str) -> str | None:
        if not self.interactive:
            meant = chat_commands.piped_meaning(line)
        else:
            meant = chat_commands.meaning_of(line, [])
        if isinstance(meant, str):
            return meant
        name, argument = meant
        match name:
            case "help":
                width = width_of(sys.stderr if self.interactive else sys.stdout)
                keys = self.editor is not None
                self._put(chat_commands.help_page((), keys=keys, width=width, ours=HERE))
            case "new":
                self._next = structs.replace(self._next, session=argument or None)
                self.show.notice(
                    f"the next prompt continues the session {argument}, or starts it if "
                    f"{self._turns.host.name} has none of that name"
                    if argument
                    else "the next prompt starts a new session"
                )
            case "model" | "mode":
                if not argument:
                    raise UsageError(f"/{name} needs a name: /{name} NAME")
                options = {**self._next.options, name: argument}
                self._next = structs.replace(self._next, options=options)
                self.show.notice(f"using {name} {argument} from the next prompt on")
            case "cost":
                self._put(chat_commands.cost_page(self._used))
            case "quit":
                self.over = True
            case _:
                raise UsageError(
                    f"/{name} cannot be used with --host; available: /{', /'.join(HERE)}"
                )
        return None

    def _put(self, page: str) -> None:
        chat_commands.show_page(page, self.show, interactive=self.interactive)

    def redacted(self, text: str) -> str:
        return redactor(()).text(text)

    def suggestions(self, text: str) -> Iterable[Suggestion]:
        return ()

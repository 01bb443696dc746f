"""`dragoman init`: options, questions, steps and interrupt handling of the first setup.

`setup.init` finds and verifies the installed agents and chooses the first task, `setup.add_peer`
enables peers, `delegation` runs the task. Rendering is in `output.init_progress`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.completions import complete_peer
from dragoman.cli.output.terminal import put_err
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat
from dragoman.errors import DragomanError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.output.init_progress import InitOutput
    from dragoman.cli.output.renderer import Renderer
    from dragoman.delegation import CancelHandle, Delegation, DelegationRequest
    from dragoman.runs.context import RunContext
    from dragoman.setup.init import InstalledAgents, VerifiedPeer

HELP: Final = """
Find the installed agents, verify them and run a first task.

In four steps it finds the installed agents, verifies them, enables the ones you pick, and delegates
a first task. If you name peers, only those are set up. Peers that were verified before and have not
changed are not verified again. Verification calls no model unless you add --turns; the task at the
end is one short prompt, and without --yes you are asked before it is sent. Some peers report a
missing login only when prompted: you are asked whether to send a prompt, --try-login sends it
without asking, and with --yes alone it is not sent.

Each step is saved when it is done: after Ctrl-C, `dragoman init` continues from there. The exit
code is 0 if one of the enabled peers answered, if you declined the task, or if nothing is installed
and scout answered. It is 10 if agents are installed but none works.

\b
Examples:
  dragoman init                       all steps, with questions
  dragoman init --yes                 without questions: enable all that work
  dragoman init codex gemini --yes    only these two
  dragoman init --turns               also verify with calls to their models
  dragoman init --yes --format json | jq 'select(.type == "Beginning")'
"""

app: Final = new_app()


@app.command(help=HELP, context_settings=CONTEXT)
def init(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PEER",
            help="Only these peers.",
            show_default=False,
            autocompletion=complete_peer,
        ),
    ] = None,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; enable every peer that works.")
    ] = False,
    turns: Annotated[
        bool,
        typer.Option(
            "--turns", help="Also run the steps that call their models; this may cost money."
        ),
    ] = False,
    try_login: Annotated[
        bool,
        typer.Option(
            "--try-login",
            help="Send one short prompt to peers that report a missing login only when prompted.",
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Verify again, even unchanged peers.")
    ] = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    from dragoman.cli import error_messages
    from dragoman.cli.command_loop import CommandLoop, perform
    from dragoman.cli.output.init_progress import InitOutput
    from dragoman.cli.output.renderer import show_as
    from dragoman.cli.output.terminal import is_interactive
    from dragoman.runs.context import load_context

    place = load_context(cwd)
    show = show_as(format.value)
    live = CommandLoop()
    course = _Setup(
        place, InitOutput(format, show), show, live, ask=not yes, silent=format is ListFormat.QUIET
    )
    try:
        if not yes and not is_interactive():
            raise UsageError("there is no terminal to ask questions on: add --yes")
        for problem in place.config.problems:
            # A skipped setting might be the one that excludes a peer.
            raise problem
        code = perform(
            live, lambda: course.run(names or (), turns=turns, again=again, try_login=try_login)
        )
    except DragomanError as error:
        show.failed(error)
        raise typer.Exit(error_messages.exit_code(error)) from None
    raise typer.Exit(1 if show.lost else code)


class _Setup:
    """Runs the steps of `dragoman init`."""

    def __init__(
        self,
        place: RunContext,
        telling: InitOutput,
        show: Renderer,
        live: CommandLoop,
        *,
        ask: bool,
        silent: bool,
    ) -> None:
        self._place = place
        self._telling = telling
        self._show = show
        self._live = live
        self._ask = ask
        self._silent = silent
        self._cancel: CancelHandle | None = None

    async def run(self, names: Sequence[str], *, turns: bool, again: bool, try_login: bool) -> int:
        """Run all steps and return the exit code."""
        import asyncio

        from dragoman.cli.command_loop import Interrupted
        from dragoman.cli.exit_codes import ExitCode

        main = asyncio.current_task()
        assert main is not None

        def interrupted(count: int) -> None:
            cancel = self._cancel
            if cancel is not None and cancel.in_turn and count == 1 and not self._live.terminated:
                self._show.notice("cancelling; press Ctrl-C again to quit immediately")
                cancel.pull()
            else:
                main.cancel()

        self._live.listen(interrupted)
        # Closed output stops the command, as Ctrl-C does.
        self._show.on_broken = self._live.press
        try:
            return await self._steps(names, turns=turns, again=again, try_login=try_login)
        except asyncio.CancelledError:
            self._telling.interrupted(self._live.interrupt_code)
            raise
        except Interrupted:
            self._telling.interrupted(ExitCode.INTERRUPTED)
            return ExitCode.INTERRUPTED

    async def _steps(
        self, names: Sequence[str], *, turns: bool, again: bool, try_login: bool
    ) -> int:
        from dragoman.cli.exit_codes import ExitCode
        from dragoman.setup import init as setup_init

        found = setup_init.look(self._place, names)
        self._telling.found(found)
        proofs = await self._verify(found, turns=turns, again=again)
        proofs = await self._try_login(found, proofs, consent=try_login)
        enabled = await self._enable([proof.name for proof in proofs if proof.ready])
        request = setup_init.first_wish(self._place, enabled)
        self._telling.delegating(request)
        if enabled and not await self._agrees():
            self._telling.skipped(request, ExitCode.OK)
            return ExitCode.OK
        done = await self._delegate(request)
        failure = setup_init.let_down(done, enabled)
        code = self._code(done, failed=failure is not None, nobody=bool(proofs) and not enabled)
        if done.interrupted:
            self._telling.interrupted(code)
        else:
            self._telling.ended(done, request, failure, code)
        return code

    async def _verify(
        self, found: InstalledAgents, *, turns: bool, again: bool
    ) -> list[VerifiedPeer]:
        from dragoman.setup.init import prove

        if not found.installed:
            return []
        self._telling.verifying(turns=turns)
        return await prove(
            found.installed,
            self._place,
            turns=turns,
            again=again,
            on_rung=self._telling.rung,
            on_proof=self._telling.proof,
        )

    async def _try_login(
        self, found: InstalledAgents, proofs: list[VerifiedPeer], *, consent: bool
    ) -> list[VerifiedPeer]:
        """Send one prompt to each ready peer for which only a prompt can show whether it is logged
        in, and return `proofs`, updated for these peers. Because this calls their models, nothing
        is sent unless `consent` is set or the user agrees."""
        from dragoman.setup.init import try_prompt, untried

        names = untried(proofs)
        if not names or not (consent or await self._consents(names)):
            return proofs
        rows = {row.descriptor.name: row for row in found.installed}
        tried = []
        for proof in proofs:
            if proof.name in names:
                with self._telling.prompting(proof.name):
                    proof = await try_prompt(rows[proof.name], proof, self._place)
                self._telling.proof(proof)
            tried.append(proof)
        return tried

    async def _consents(self, names: list[str]) -> bool:
        if not self._ask:
            return False
        answer = await self._answer(
            f"{', '.join(names)}: only a prompt shows whether the peer is logged in. "
            "Send one short prompt to each?",
            "[y/N]",
        )
        return answer is not None and answer.strip().lower() in ("y", "yes")

    async def _agrees(self) -> bool:
        """Return whether the first task may call a model. Asks the user, unless --yes was given."""
        if not self._ask:
            return True
        answer = await self._answer("It calls the model of an enabled peer. Send it?", "[Y/n]")
        return answer is not None and answer.strip().lower() in ("", "y", "yes")

    async def _answer(self, question: str, choices: str) -> str | None:
        from dragoman.cli.command_loop import Interrupted

        self._telling.question(question)
        try:
            return await self._live.line(f"   {choices} ", fresh=True)
        except Interrupted:
            put_err("\n")
            raise

    async def _enable(self, ready: list[str]) -> tuple[str, ...]:
        from dragoman.setup.add_peer import enable

        picked: tuple[str, ...] = ()
        if ready:
            self._telling.choosing()
            picked = await self._picked(ready)
        notes: tuple[str, ...] = ()
        if picked:
            notes = enable(picked, self._place).notes
            self._place = self._place.again()
        # Project settings or an environment variable may override it.
        enabled = tuple(name for name in picked if self._place.is_enabled(name))
        if ready or self._telling.done.installed:
            self._telling.enabled(enabled, notes, str(self._place.paths.config_file))
        return enabled

    async def _picked(self, ready: list[str]) -> tuple[str, ...]:
        from dragoman.setup.init import chosen

        if not self._ask:
            return tuple(ready)
        while True:
            answer = await self._answer(
                f"Enable {', '.join(ready)}?", "[Enter for all, names for some, n for none]"
            )
            if answer is None:
                return ()
            try:
                return chosen(answer, ready)
            except UsageError as error:
                self._show.notice(str(error))

    async def _delegate(self, request: DelegationRequest) -> Delegation:
        from dragoman.cli.output.delegation_output import DelegationOutput as Shown
        from dragoman.delegation import CancelHandle, DelegationListener, delegate_request

        self._cancel = CancelHandle()
        listener = (
            DelegationListener()
            if self._silent
            else Shown(self._show, self._place.catalogue, tells_last_resort=False)
        )
        done = await delegate_request(
            request, place=self._place, listener=listener, cancel=self._cancel
        )
        if isinstance(listener, Shown):
            listener.over(done, terminated=self._live.terminated)
        return done

    def _code(self, done: Delegation, *, failed: bool, nobody: bool) -> int:
        from dragoman.cli.exit_codes import ExitCode, of_outcome
        from dragoman.cli.output.delegation_output import exit_code

        if not done.ok:
            return exit_code(done, terminated=self._live.terminated)
        if failed:
            return of_outcome(done.attempts[0].outcome.value) or ExitCode.FAILED
        return ExitCode.UNVERIFIED if nobody else ExitCode.OK

"""Terminals with real commands: what they print, how they end, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

from dragoman.client.services import terminals as module
from dragoman.client.services.scrollback import Scrollback
from dragoman.client.services.terminals import ExitStatus, TerminalOutput, Terminals
from dragoman.client.services.workspace import Workspace
from dragoman.errors import (
    ProgramNotFound,
    SpawnError,
    TerminalUnknown,
    TooManyTerminals,
    UsageError,
)
from dragoman.transports.process import child
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.environment import owner
from dragoman.transports.process.strays import find_owned
from tests.aio import aio

TIMEOUT = 20.0
"""Seconds until a wait is a failure. Generous, because the machine may be busy with other tests."""

QUICK = ShutdownTimes(terminate_timeout=0.2)
"""For commands that ignore SIGTERM."""

DONE = ExitStatus(0, None)


class Watched(Scrollback):
    """Output that can be waited for. Peers have to ask again and again; a test shall not."""

    grew: ClassVar[asyncio.Event]

    def feed(self, data: bytes) -> None:
        super().feed(data)
        self.grew.set()


@asynccontextmanager
async def terminals(root: Path, **options: Any) -> AsyncIterator[Terminals]:
    Watched.grew = asyncio.Event()
    with mock.patch.object(module, "Scrollback", Watched):
        made = Terminals(Workspace([root]), **options)
        try:
            async with asyncio.timeout(TIMEOUT):
                yield made
        finally:
            await made.aclose()


def python(program: str) -> list[str]:
    """The command for a program given as text."""
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(program)]


async def run(made: Terminals, command: str, *args: str, **options: Any) -> TerminalOutput:
    terminal = await made.create(command, args, **options)
    status = await made.wait_for_exit(terminal)
    output = made.output(terminal)
    assert output.exit_status == status
    return output


async def until_shown(made: Terminals, terminal: str, text: str) -> None:
    while text not in made.output(terminal).output:
        assert made.output(terminal).exit_status is None, "it ended without showing that"
        Watched.grew.clear()
        await Watched.grew.wait()


@aio
async def test_both_outputs_come_in_order_and_the_exit_comes_after_them(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        line = "echo one; echo two >&2; echo three; exit 3"
        assert await run(made, line) == ("one\ntwo\nthree\n", False, ExitStatus(3, None))


@aio
async def test_an_argument_list_reaches_the_program_untouched(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        nasty = ["a b", "", "$HOME", "`id`", "ä", "'\"\\", "*", "\n"]
        program = "import sys; print(ascii(sys.argv[1:]))"
        output = await run(made, sys.executable, "-I", "-S", "-c", program, *nasty)
        assert output.output == ascii(nasty) + "\n"


@aio
async def test_a_program_with_a_space_in_its_name_is_not_taken_for_a_line(tmp_path: Path) -> None:
    (tmp_path / "my tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "my tool").chmod(0o755)
    async with terminals(tmp_path) as made:
        assert await run(made, "./my tool") == ("tool\n", False, DONE)


@aio
async def test_the_folder_is_the_one_asked_for_or_the_first_root(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    async with terminals(tmp_path) as made:
        assert (await run(made, "/bin/pwd")).output == f"{tmp_path}\n"
        assert (await run(made, "/bin/pwd", cwd=tmp_path / "sub")).output == f"{tmp_path}/sub\n"
        assert (await run(made, "/bin/pwd", cwd=tmp_path / "link")).output == f"{tmp_path}/sub\n"


@aio
async def test_a_command_gets_what_it_needs_of_our_environment_and_what_the_peer_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "hush")
    monkeypatch.setenv("WANTED_BY_US", "shared")
    monkeypatch.setenv("LANG", "C.UTF-8")
    show = 'echo "$SECRET_API_KEY/$WANTED_BY_US/$LANG/$ADDED/${PATH:+path}/$DRAGOMAN_MARK"'
    async with terminals(tmp_path, inherit=["WANTED_*"]) as made:
        env = {"ADDED": "a b", "LANG": "C", "DRAGOMAN_MARK": "forged.1"}
        output = (await run(made, show, env=env)).output
    assert output.startswith(f"/shared/C/a b/path/{owner()}.")


@aio
async def test_a_command_has_no_input_and_no_terminal(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        assert (await run(made, "cat; [ -t 0 ] || [ -t 1 ] || echo none")).output == "none\n"


@aio
async def test_output_over_the_limit_is_dropped_from_the_beginning_between_characters(
    tmp_path: Path,
) -> None:
    async with terminals(tmp_path, max_output_size=50) as made:
        line = "printf 'aäöü€'"
        assert await run(made, line, output_byte_limit=10) == ("aäöü€", False, DONE)
        assert await run(made, line, output_byte_limit=9) == ("äöü€", True, DONE)
        assert await run(made, line, output_byte_limit=8) == ("öü€", True, DONE)
        assert await run(made, line, output_byte_limit=2) == ("", True, DONE)
        assert await run(made, line, output_byte_limit=0) == ("", True, DONE)
        long = await run(made, "printf '%0100d' 7", output_byte_limit=2**64 - 1)
        assert long == ("7".rjust(50, "0"), True, DONE)


@aio
async def test_a_flood_is_kept_in_bounded_memory_to_its_last_line(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        output = await run(
            made,
            *python(
                """
                import os
                for _ in range(64):
                    os.write(1, b"0123456789abcde\\n" * 65536)
                os.write(1, b"the end\\n")
                """
            ),
        )
        assert output.truncated
        assert output.exit_status == DONE
        assert len(output.output) == 1024 * 1024
        assert output.output.endswith("0123456789abcde\nthe end\n")


@aio
async def test_bytes_that_are_not_text_are_replaced_also_across_writes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    program, *args = python(
        """
        import os
        os.write(1, b"a\\xe2\\x82")
        open("go").read()
        os.write(1, b"\\xac b\\xff c\\xe2")
        """
    )
    async with terminals(tmp_path) as made:
        terminal = await made.create(program, args)
        await until_shown(made, terminal, "a")
        assert made.output(terminal) == ("a", False, None)
        await asyncio.to_thread((tmp_path / "go").write_text, "")
        await made.wait_for_exit(terminal)
        assert made.output(terminal).output == "a€ b\ufffd c\ufffd"


@aio
async def test_output_is_shown_while_the_command_runs(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("echo ready; exec sleep 100")
        await until_shown(made, terminal, "ready\n")
        assert made.output(terminal) == ("ready\n", False, None)


@aio
async def test_the_exit_is_not_told_before_the_output_is_complete(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("printf '%060000d' 7; exit 3")
        inside = made._terminals[terminal]
        inside._pipe.pause()
        await inside._child.wait_exited()
        assert made.output(terminal).exit_status is None
        inside._pipe.resume()
        assert await made.wait_for_exit(terminal) == ExitStatus(3, None)
        assert made.output(terminal).output == "7".rjust(60_000, "0")


@aio
async def test_what_is_in_the_pipe_at_the_end_is_read_before_the_pipe_is_given_up(
    tmp_path: Path,
) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("printf '%060000d' 7; exit 3")
        # As if the loop were too busy with other things to look at the pipe.
        asyncio.get_running_loop().remove_reader(made._terminals[terminal]._pipe._fd)
        assert await made.wait_for_exit(terminal) == ExitStatus(3, None)
        assert made.output(terminal).output == "7".rjust(60_000, "0")


@aio
async def test_a_pipe_held_by_a_process_that_cannot_be_found_is_given_up(tmp_path: Path) -> None:
    """Without a mark and in a session of its own, it is no more ours than any other process."""
    async with terminals(tmp_path) as made:
        escaped = "env -i setsid sh -c 'echo $$; : > escaped; exec sleep 100'"
        terminal = await made.create(f"{escaped} & while [ ! -e escaped ]; do sleep 0.02; done")
        assert await made.wait_for_exit(terminal) == DONE
        pid = int(made.output(terminal).output)
        inside = made._terminals[terminal]
        try:
            await made.release(terminal)
            assert inside._pipe.closed
        finally:
            os.kill(pid, signal.SIGKILL)


@aio
async def test_a_finished_command_is_released_without_waiting_for_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "ORPHAN_TIMEOUT", 10 * TIMEOUT)
    async with terminals(tmp_path) as made:
        terminal = await made.create("echo done")
        await made.wait_for_exit(terminal)
        await made.release(terminal)


@aio
async def test_a_killed_command_keeps_its_terminal(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("echo ready; exec sleep 100")
        await until_shown(made, terminal, "ready\n")
        waiting = asyncio.gather(made.wait_for_exit(terminal), made.wait_for_exit(terminal))
        await made.kill(terminal)
        status = ExitStatus(None, "SIGTERM")
        assert list(await waiting) == [status, status]
        assert made.output(terminal) == ("ready\n", False, status)
        assert await made.wait_for_exit(terminal) == status
        await made.kill(terminal)
        await made.release(terminal)
        with pytest.raises(TerminalUnknown):
            made.output(terminal)


@aio
async def test_killing_a_finished_command_changes_nothing(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("echo done; exit 7")
        await made.wait_for_exit(terminal)
        await made.kill(terminal)
        assert made.output(terminal) == ("done\n", False, ExitStatus(7, None))


@aio
async def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async with terminals(tmp_path, times=QUICK) as made:
        terminal = await made.create("trap '' TERM; echo ready; while :; do sleep 0.1; done")
        await until_shown(made, terminal, "ready")
        await made.kill(terminal)
        assert made.output(terminal).exit_status == ExitStatus(None, "SIGKILL")


@aio
async def test_a_command_that_ends_on_sigterm_may_say_a_last_word(tmp_path: Path) -> None:
    program, *args = python(
        """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"tidied\\n"), sys.exit(5)))
        os.write(1, b"ready\\n")
        while True:
            time.sleep(0.01)
        """
    )
    async with terminals(tmp_path, times=ShutdownTimes(terminate_timeout=TIMEOUT)) as made:
        terminal = await made.create(program, args)
        await until_shown(made, terminal, "ready")
        await made.kill(terminal)
        assert made.output(terminal) == ("ready\ntidied\n", False, ExitStatus(5, None))


@aio
async def test_release_ends_the_command_and_the_waiting_for_it(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("exec sleep 100")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(made.wait_for_exit(terminal))
            await asyncio.sleep(0)
            await made.release(terminal)
        assert waiting.result() == ExitStatus(None, "SIGTERM")
        assert find_owned(owner()) == []
        for method in (made.wait_for_exit, made.kill, made.release):
            with pytest.raises(TerminalUnknown):
                await method(terminal)


@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1 </dev/null"])
@pytest.mark.parametrize("starter", ["", "setsid "])
@aio
async def test_what_a_command_leaves_in_the_background_ends_with_it(
    tmp_path: Path, starter: str, redirect: str
) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create(f"{starter}sleep 100 {redirect} & echo started")
        assert await made.wait_for_exit(terminal) == DONE
        assert made.output(terminal).output == "started\n"
        await made.release(terminal)
        assert find_owned(owner()) == []


@aio
async def test_a_pipeline_is_killed_as_a_whole(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("echo ready; sleep 100 | sleep 100 | cat")
        await until_shown(made, terminal, "ready")
        await made.kill(terminal)
        assert find_owned(owner()) == []
        assert made.output(terminal).exit_status == ExitStatus(None, "SIGTERM")


@aio
async def test_closing_ends_everything_at_once(tmp_path: Path) -> None:
    made = Terminals(Workspace([tmp_path]))
    async with asyncio.timeout(TIMEOUT):
        names = [await made.create("exec sleep 100") for _ in range(5)]
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(made.wait_for_exit(name)) for name in names]
            await asyncio.sleep(0)
            closing = [group.create_task(made.aclose()) for _ in range(2)]
            await asyncio.wait(closing)
            assert find_owned(owner()) == []
    assert {task.result() for task in waiting} == {ExitStatus(None, "SIGTERM")}
    with pytest.raises(TerminalUnknown):
        made.output(names[0])


@pytest.mark.parametrize("cancellations", [1, 3])
@aio
async def test_closing_is_finished_even_if_it_is_cancelled(
    tmp_path: Path, cancellations: int
) -> None:
    async with terminals(tmp_path, times=QUICK) as made:
        terminal = await made.create("trap '' TERM; echo ready; while :; do sleep 0.1; done")
        await until_shown(made, terminal, "ready")
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(made.aclose())
            for _ in range(cancellations):
                await asyncio.sleep(0)
                closing.cancel()
        assert closing.cancelled()
        assert find_owned(owner()) == []


@aio
async def test_a_cancelled_release_still_ends_the_command(tmp_path: Path) -> None:
    async with terminals(tmp_path, max_terminals=1) as made:
        terminal = await made.create("exec sleep 100")
        async with asyncio.TaskGroup() as group:
            releasing = group.create_task(made.release(terminal))
            await asyncio.sleep(0)
            releasing.cancel()
        assert releasing.cancelled()
        with pytest.raises(TooManyTerminals):
            await made.create("true")
        (leaving,) = made._leaving
        await leaving._child.wait_gone()
        await made.create("true")


@aio
async def test_a_cancelled_wait_leaves_the_command_alone(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        terminal = await made.create("echo ready; exec sleep 100")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await made.wait_for_exit(terminal)
        await until_shown(made, terminal, "ready")
        assert made.output(terminal).exit_status is None


@aio
async def test_there_is_an_end_to_how_many_terminals_a_peer_may_have(tmp_path: Path) -> None:
    async with terminals(tmp_path, max_terminals=3) as made:
        names = [await made.create("true") for _ in range(3)]
        with pytest.raises(TooManyTerminals, match="all 3 terminals"):
            await made.create("true")
        await made.release(names[0])
        await made.create("true")
        made_at_once = await asyncio.gather(
            *(made.create("true") for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(result, TooManyTerminals) for result in made_at_once)


@aio
async def test_a_creation_that_is_overtaken_by_closing_starts_nothing(tmp_path: Path) -> None:
    made = Terminals(Workspace([tmp_path]))
    async with asyncio.timeout(TIMEOUT):
        creating = asyncio.gather(made.create("exec sleep 100"), return_exceptions=True)
        await asyncio.sleep(0)
        await made.aclose()
        (result,) = await creating
    assert isinstance(result, UsageError)
    assert find_owned(owner()) == []


@aio
async def test_ids_are_never_used_twice(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        names = set()
        for _ in range(5):
            terminal = await made.create("true")
            names.add(terminal)
            await made.release(terminal)
        assert len(names) == 5


@aio
async def test_a_command_that_closes_its_output_and_lives_on_is_still_running(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "closed")
    async with terminals(tmp_path) as made:
        line = "echo quiet; exec >/dev/null 2>&1; : > closed; exec sleep 100"
        terminal = await made.create(line)
        await asyncio.to_thread((tmp_path / "closed").read_text)
        await until_shown(made, terminal, "quiet")
        assert made.output(terminal).exit_status is None
        await made.kill(terminal)
        assert made.output(terminal) == ("quiet\n", False, ExitStatus(None, "SIGTERM"))


@aio
async def test_a_program_that_does_not_exist_is_named_and_costs_nothing(tmp_path: Path) -> None:
    async with terminals(tmp_path, max_terminals=1) as made:
        for _ in range(3):
            with pytest.raises(ProgramNotFound, match="no-such-program"):
                await made.create("no-such-program", ["x"])
        assert (await run(made, "no-such-program x")).exit_status == ExitStatus(127, None)


@aio
async def test_many_commands_at_once_do_not_mix_their_outputs(tmp_path: Path) -> None:
    async with terminals(tmp_path) as made:
        outputs = await asyncio.gather(
            *(
                run(made, f"i=0; while [ $i -lt 200 ]; do echo {n}; i=$((i+1)); done")
                for n in range(8)
            )
        )
        for number, output in enumerate(outputs):
            assert output == (f"{number}\n" * 200, False, DONE)


@aio
async def test_a_lack_of_descriptors_is_reported_and_costs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with terminals(tmp_path) as made:
        before = len(os.listdir("/proc/self/fd"))

        def none_left() -> tuple[int, int]:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pipe", none_left)
            with pytest.raises(SpawnError, match="Too many open files"):
                await made.create("true")
        assert len(os.listdir("/proc/self/fd")) == before

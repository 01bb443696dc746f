"""The facade for programs without an event loop, with a real agent, and Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from dragoman import connect_sync
from dragoman.client.permissions import Answer, Question
from dragoman.errors import (
    ConnectionClosed,
    HandshakeFailed,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import THREAD_NAME
from dragoman.testing.scripted import Exit, command
from tests.integration.full_agent import KEPT
from tests.integration.peers import AGENT, ENVIRONMENT, ROOT, WAIT_TIMEOUT


def test_a_script_asks_and_iterates_without_a_loop(tmp_path: Path) -> None:
    with connect_sync(AGENT, workspace=tmp_path, env=ENVIRONMENT) as peer:
        assert (peer.dialect, peer.info.name) == ("acp", "full")
        assert peer.capabilities.load
        assert [method.id for method in peer.auth_methods] == ["login"]
        peer.authenticate("login")
        with peer.session() as session:
            assert session.id
            assert session.ask("hello").text == "ask: hello"
            session.set_mode("code")
            session.set_option("depth", "high")
            with session.prompt("count 500") as turn:
                kinds = [type(event).__name__ for event in turn]
                assert turn.result.ok
            assert kinds == ["TurnStarted", *["MessageDelta"] * 500, "TurnEnded"]
            with pytest.raises(Unsupported):
                session.set_model("none")
            with pytest.raises(Unsupported):
                session.steer("more")
        assert [summary.id for summary in peer.list_sessions()] == [KEPT]
        with peer.session(load=KEPT) as session:
            assert len(session.replayed()) >= 3
        with pytest.raises(RemoteError):
            peer.delete_session("nonesuch")
        peer.logout()
    with pytest.raises(ConnectionClosed):
        peer.logout()


def test_a_turn_is_cancelled_by_leaving_its_block_or_on_request(tmp_path: Path) -> None:
    with (
        connect_sync(AGENT, workspace=tmp_path, env=ENVIRONMENT) as peer,
        peer.session() as session,
    ):
        with session.prompt("wait") as turn:
            for event in turn:
                if isinstance(event, model.MessageDelta):
                    break
        with session.prompt("wait") as turn:
            for event in turn:
                if isinstance(event, model.MessageDelta):
                    turn.cancel()
            assert turn.result.outcome is Outcome.CANCELLED


def test_an_iteration_that_is_left_early_goes_on_where_it_was_left(tmp_path: Path) -> None:
    texts: list[str] = []
    with (
        connect_sync(AGENT, workspace=tmp_path, env=ENVIRONMENT) as peer,
        peer.session() as session,
        session.prompt("count 100") as turn,
    ):
        for event in turn:
            if isinstance(event, model.MessageDelta):
                texts.append(event.text)
                if len(texts) == 3:
                    break
        texts += [event.text for event in turn if isinstance(event, model.MessageDelta)]
        assert "".join(texts) == turn.result.text and len(texts) > 3


def test_a_permission_may_block_its_thread_and_a_failing_one_fails_its_turn(
    tmp_path: Path,
) -> None:
    threads: list[str] = []

    def permit(question: Question) -> Answer:
        threads.append(threading.current_thread().name)
        match question.title:
            case "Fail":
                raise RuntimeError("no terminal")
            case "Exit":
                raise SystemExit(3)
            case "Empty":
                return next(iter(()))
        return Answer.ALLOW_ONCE

    with (
        connect_sync(AGENT, workspace=tmp_path, env=ENVIRONMENT, permit=permit) as peer,
        peer.session() as session,
    ):
        assert session.ask("permission").text == "allowed"
        for title, said in (
            ("Fail", "RuntimeError: no terminal"),
            ("Exit", "SystemExit(3)"),
            ("Empty", "StopIteration()"),
        ):
            result = session.ask(f"permission {title}")
            assert result.outcome is Outcome.FAILED
            assert type(result.error) is UsageError and result.error.may_have_run
            assert said in str(result.error)
        assert session.ask("permission").text == "allowed"
    assert threads == ["dragoman permit"] * 5


def test_an_async_permission_works_too(tmp_path: Path) -> None:
    async def permit(question: Question) -> Answer:
        return Answer.ALLOW_ONCE

    with (
        connect_sync(AGENT, workspace=tmp_path, env=ENVIRONMENT, permit=permit) as peer,
        peer.session() as session,
    ):
        assert session.ask("permission").text == "allowed"


def test_a_failed_handshake_is_raised_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(HandshakeFailed), connect_sync(command(Exit(2))):
        pytest.fail("there is nobody to talk with")
    left = set(threading.enumerate()) - before
    assert [thread for thread in left if thread.name != THREAD_NAME] == []


def test_a_program_without_free_descriptors_gets_the_error_at_once() -> None:
    program = """
        import os, resource
        from dragoman import connect_sync
        # An import needs a descriptor too.
        import dragoman.client.sync
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        try:
            while True:
                os.open("/dev/null", os.O_RDONLY)
        except OSError:
            pass
        try:
            with connect_sync(["true"]):
                print("connected")
        except OSError as error:
            print(error.strerror)
    """
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={**ENVIRONMENT, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=WAIT_TIMEOUT,
    )
    # Python may complain on stderr about its half-made loop.
    assert child.stdout == "Too many open files\n"
    assert "never awaited" not in child.stderr


def test_ctrl_c_cancels_the_turn_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = f"""
        import signal, sys, threading
        from dragoman import connect_sync
        from dragoman.events import model
        # Whoever runs the tests in the background may have made their children ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with connect_sync({AGENT!r}, env={ENVIRONMENT!r}) as peer:
                with peer.session() as session:
                    with session.prompt("wait") as turn:
                        for event in turn:
                            if isinstance(event, model.MessageDelta):
                                print("running", flush=True)
        except KeyboardInterrupt:
            names = [thread.name for thread in threading.enumerate()]
            print("outcome", turn._turn.state.value, "dragoman" in names, flush=True)
    """
    child = subprocess.Popen(  # noqa: TID251 - it is interrupted here, as a person would do it
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={**ENVIRONMENT, "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        try:
            out, err = child.communicate(timeout=WAIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
    assert (out.splitlines()[-1], err, child.returncode) == ("outcome ended False", "", 0)

"""The fake model as a program of its own."""

from __future__ import annotations

import asyncio
import io
import socket
import sys
import urllib.request

import pytest

from dragoman.testing.fake_model.__main__ import main

TIMEOUT = 20.0
"""Seconds for a small program to start or end, on a machine that is busy."""


def test_the_program_prints_its_address_and_ends_with_its_input() -> None:
    async def run() -> tuple[str, bytes, int | None]:
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dragoman.testing.fake_model",
            "--port",
            "0",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            url = (await program.stdout.readline()).decode().strip()
            answer = await asyncio.to_thread(fetch, f"{url}/v1/models")
            program.stdin.close()
            return url, answer, await program.wait()

    url, answer, code = asyncio.run(run())
    assert url.startswith("http://127.0.0.1:")
    assert b"fake-model" in answer
    assert code == 0


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        data: bytes = answer.read()
    return data


def test_the_program_ends_at_once_without_any_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_a_port_in_use_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--port", str(taken.getsockname()[1])]) == 1
    assert capsys.readouterr().err.startswith("the fake model cannot listen: ")

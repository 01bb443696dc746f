"""The program of a broker is started with its spec, and says how it went."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from dragoman import version
from dragoman.broker.client import launch
from dragoman.broker.endpoint import Endpoint
from dragoman.broker.error_codec import describe
from dragoman.broker.spec import BrokerSpec, Folders
from dragoman.errors import BrokerUnavailable, NotInstalled
from dragoman.transports.process.stream import reap_detached
from tests.aio import aio

TIMEOUT = 20.0


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    return Endpoint(name="tool-1", runtime=tmp_path / "run", logs=tmp_path / "logs")


def spec(**env: str) -> BrokerSpec:
    return BrokerSpec(
        peer="tool", workspace="/", env=env, paths=Folders(state="/s", runtime="/r", data="/d")
    )


def program(code: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *words]


@aio
async def test_a_program_that_is_ready_has_got_its_spec_whatever_its_size(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    # More than a pipe holds, and not on the command line or in the environment.
    big = spec(BIG="x" * 300_000)
    code = (
        "import os, sys; text = sys.stdin.buffer.read(); open(sys.argv[1], 'wb').write(text)\n"
        "print('{\"ready\": true}', flush=True); print(os.getcwd(), file=sys.stderr)"
    )
    await launch.start(big, endpoint, timeout=TIMEOUT, program=program(code, f"{tmp_path}/spec"))
    assert (tmp_path / "spec").read_bytes() == big.encode() + b"\n"
    assert not reap_detached()
    assert endpoint.log.read_text() == "/\n"


@aio
async def test_a_program_is_not_started_for_a_spec_that_is_not_utf_8(endpoint: Endpoint) -> None:
    with pytest.raises(BrokerUnavailable, match="accepts only UTF-8"):
        await launch.start(
            spec(PATH="caf\udce9"), endpoint, timeout=TIMEOUT, program=["/no/such/program"]
        )


@aio
async def test_what_the_broker_says_is_wrong_is_raised(endpoint: Endpoint, tmp_path: Path) -> None:
    error = NotInstalled("tool", "no tool on the PATH", remedy="get one")
    said = json.dumps({"failed": describe(error)})
    with pytest.raises(NotInstalled, match="get one") as raised:
        await launch.start(
            spec(),
            endpoint,
            timeout=TIMEOUT,
            program=program("import sys; print(sys.argv[1])", said),
        )
    assert raised.value.remedy == "get one"


@aio
async def test_a_name_that_another_process_holds_is_not_a_failure(endpoint: Endpoint) -> None:
    code = "print('{\"taken\": true}')"
    await launch.start(spec(), endpoint, timeout=TIMEOUT, program=program(code))


@pytest.mark.parametrize("said", ["", "hello", "[1]", "{}"])
@aio
async def test_any_other_word_is_the_end_with_the_log(endpoint: Endpoint, said: str) -> None:
    endpoint.logs.mkdir()
    endpoint.log.write_text("of an earlier one\n")
    code = (
        "import sys; sys.stdin.buffer.read(); print('why', file=sys.stderr)\n"
        f"sys.stdout.write({said!r})"
    )
    with pytest.raises(BrokerUnavailable, match="its log ends with: why") as raised:
        await launch.start(spec(), endpoint, timeout=TIMEOUT, program=program(code))
    assert raised.value.log_tail == "why\n"


@aio
async def test_a_flood_of_words_is_not_listened_to(endpoint: Endpoint) -> None:
    code = "import sys; sys.stdin.buffer.read(); sys.stdout.write('x' * 4_000_000)"
    with pytest.raises(BrokerUnavailable, match="ended during its start"):
        await launch.start(spec(), endpoint, timeout=TIMEOUT, program=program(code))


@pytest.mark.parametrize("words", [["/no/such/program"], [""]])
@aio
async def test_a_missing_program_is_reported(endpoint: Endpoint, words: list[str]) -> None:
    # A Python that is part of another program may not know its own path.
    with pytest.raises(BrokerUnavailable, match="cannot be started"):
        await launch.start(spec(), endpoint, timeout=TIMEOUT, program=words)


def test_a_long_log_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MAX_LOG_SIZE", 10)
    path = tmp_path / "logs" / "broker-x.log"
    for text in (b"a" * 11, b"b" * 5, b"c" * 6, b"d"):
        fd, _ = launch.open_log(path)
        os.write(fd, text)
        os.close(fd)
    assert path.read_bytes() == b"d"
    assert path.with_suffix(".log.1").read_bytes() == b"b" * 5 + b"c" * 6


def test_a_folder_that_cannot_be_written_to_costs_the_log_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    fd, size = launch.open_log(tmp_path / "logs" / "x.log")
    os.write(fd, b"lost")
    os.close(fd)
    assert size == 0
    assert launch.log_tail(tmp_path / "logs" / "x.log") == ""


def test_the_end_of_a_log_begins_where_this_broker_began(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"old\n" + b"n" * launch.TAIL_SIZE + b"ew\n")
    assert len(launch.log_tail(path, 4)) == launch.TAIL_SIZE
    assert launch.log_tail(path, path.stat().st_size - 3) == "ew\n"


def test_an_installed_dragoman_is_found_without_help(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "src" in launch._own_python()["PYTHONPATH"] or launch._own_python() == {}
    monkeypatch.setattr(version, "__file__", "/usr/lib/site-packages/dragoman/version.py")
    assert launch._own_python() == {}

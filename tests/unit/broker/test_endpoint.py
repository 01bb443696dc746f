"""Where a broker is found, and that the place is ours alone."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from dragoman.broker import endpoint as module
from dragoman.broker.endpoint import Endpoint, endpoint_of, make_private, short_folder
from dragoman.broker.spec import Folders
from dragoman.errors import BrokerUnavailable
from dragoman.transports.sockets import PATH_LIMIT

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and owners")
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="chown")


def at(runtime: str) -> Endpoint:
    return endpoint_of("tool-0123456789ab", Folders(state="/state", runtime=runtime, data="/d"))


def test_the_files_of_a_broker_bear_its_name() -> None:
    place = at("/run/dragoman")
    assert place.address == "/run/dragoman/brokers/tool-0123456789ab.sock"
    assert place.lock == Path("/run/dragoman/brokers/tool-0123456789ab.lock")
    assert place.starting.name == "tool-0123456789ab.starting"
    assert place.record(7).name == "tool-0123456789ab.7.json"
    assert place.log == Path("/state/logs/broker-tool-0123456789ab.log")


@posix
def test_a_path_that_is_too_long_for_a_socket_is_replaced_by_a_short_one() -> None:
    fits = "/" + "x" * (PATH_LIMIT - len("//brokers/tool-0123456789ab.sock"))
    assert len(at(fits).address) == PATH_LIMIT
    long, other = at(fits + "x").address, at(fits + "y").address
    assert Path(long).parent == short_folder()
    assert len(long) <= PATH_LIMIT
    # Two runtime folders of one user do not meet there.
    assert long != other


def test_on_windows_there_is_a_pipe_in_place_of_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    address = at("/run/dragoman").address
    assert address.startswith("\\\\.\\pipe\\dragoman-tool-0123456789ab-")
    assert address != at("/run/other").address


@posix
def test_the_folder_is_made_for_us_alone(tmp_path: Path) -> None:
    place = at(str(tmp_path / "run"))
    place.make_safe()
    assert stat.S_IMODE(place.runtime.stat().st_mode) == 0o700
    place.runtime.chmod(0o755)
    place.make_safe()
    assert stat.S_IMODE(place.runtime.stat().st_mode) == 0o700


@posix
def test_a_short_folder_that_is_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    trap = tmp_path / "short"
    trap.symlink_to(tmp_path / "mine")
    monkeypatch.setattr(module, "SHORT_FOLDER", str(trap))
    place = at(str(tmp_path / ("long" * 25)))
    with pytest.raises(BrokerUnavailable, match="not a directory"):
        place.make_safe()


@posix
def test_a_file_in_the_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(BrokerUnavailable, match="Not a directory"):
        make_private(tmp_path / "run" / "brokers")
    with pytest.raises(BrokerUnavailable, match="not a directory"):
        make_private(tmp_path / "run")


@posix
@root
def test_a_folder_of_another_user_is_refused_with_a_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o777)
    os.chown(folder, 12345, 12345)
    with pytest.raises(BrokerUnavailable, match=r"another user \(uid 12345\).*RUNTIME_DIR"):
        make_private(folder)


@posix
def test_a_folder_that_cannot_be_written_to_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BrokerUnavailable, match="cannot be written to"):
        make_private(tmp_path / "run")


def test_on_windows_modes_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    (tmp_path / "run").mkdir(mode=0o755)
    make_private(tmp_path / "run")
    at(str(tmp_path / "run")).make_safe()
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) & 0o055

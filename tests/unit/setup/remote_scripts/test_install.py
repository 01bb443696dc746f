"""The script that installs wheels: it verifies them, tests the result, and cleans up failures."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dragoman.setup.remote_scripts import install as script
from dragoman.setup.remote_scripts.install import InstallError, install


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "dragoman" / "installed"


def wheel(files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


MODULES = ("cli/__init__", "cli/app", "broker/__init__", "broker/__main__", "policy/__init__")


def dragoman(version: str = "9.9", **more: str) -> bytes:
    """A wheel of a dragoman that only prints its version."""
    files = {f"dragoman/{name}.py": "" for name in (*MODULES, "policy/shell_parser", "__init__")}
    files["dragoman/__main__.py"] = f"import other\nprint('dragoman {version}')\n"
    files["dragoman-9.9.data/platlib/other.py"] = "x = 1\n"
    files["dragoman-9.9.data/scripts/tool"] = "left out\n"
    return wheel({**files, **more})


def wanted(*wheels: bytes, version: str = "9.9") -> tuple[dict[str, Any], io.BytesIO]:
    files = [
        {"name": f"w{n}.whl", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for n, data in enumerate(wheels)
    ]
    return {"version": version, "files": files}, io.BytesIO(b"".join(wheels))


def run(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_program_runs_with_its_own_packages_and_python(home: Path) -> None:
    said = install(*wanted(dragoman()))
    assert said["program"] == str(home / "current" / "bin" / "dragoman")
    assert run(said["program"]) == "dragoman 9.9"
    folder = Path(said["folder"])
    assert not (folder / "wheels").exists() and not list(folder.rglob("tool"))
    python = folder / "bin" / "python"
    told = "import sys; print(sys.prefix, sys.prefix != sys.base_prefix)"
    done = subprocess.run([str(python), "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(folder), "True"]


def test_the_switch_keeps_the_previous_version_and_removes_older_ones(home: Path) -> None:
    folders = [install(*wanted(dragoman()))["folder"] for _ in range(3)]
    assert sorted(map(str, (home / "versions").iterdir())) == sorted(folders[1:])
    assert os.path.realpath(home / "current") == os.path.realpath(folders[2])


def damaged() -> tuple[dict[str, Any], io.BytesIO]:
    told, data = wanted(dragoman())
    told["files"][0]["sha256"] = "0" * 64
    return told, data


def short() -> tuple[dict[str, Any], io.BytesIO]:
    told, data = wanted(dragoman())
    return told, io.BytesIO(data.getvalue()[:-1])


def strange() -> tuple[dict[str, Any], io.BytesIO]:
    told, data = wanted(dragoman())
    told["files"][0]["name"] = "../w.whl"
    return told, data


@pytest.mark.parametrize(
    ("sent", "kind", "words"),
    [
        (damaged(), "damaged", "digest"),
        (short(), "damaged", "ended before"),
        (strange(), "damaged", "not the name of a wheel file"),
        (wanted(wheel({"../x.py": ""})), "damaged", "contains the unsafe path"),
        (wanted(wheel({"/x.py": ""})), "damaged", "contains the unsafe path"),
        (wanted(dragoman("1.0")), "broken", "instead of 9.9"),
        (wanted(wheel({"other.py": ""})), "broken", "does not start"),
        (wanted(dragoman(**{"dragoman/cli/app.py": "import no_such"})), "broken", "no_such"),
    ],
)
def test_a_failure_keeps_the_previous_installation(
    home: Path, sent: tuple[dict[str, Any], io.BytesIO], kind: str, words: str
) -> None:
    before = install(*wanted(dragoman()))
    with pytest.raises(InstallError, match=words) as caught:
        install(sent[0], io.BytesIO(sent[1].getvalue()))
    assert caught.value.kind == kind
    assert [str(each) for each in (home / "versions").iterdir()] == [before["folder"]]
    assert run(before["program"]) == "dragoman 9.9"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), "full"),
        (OSError(13, "Permission denied"), "system"),
        (InstallError("damaged", "x"), "damaged"),
        (zipfile.BadZipFile("x"), "damaged"),
    ],
)
def test_every_failure_is_reported_as_one_marked_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    kind: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(script, "install", fail)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    script.main()
    line = capsys.readouterr().out.strip()
    assert json.loads(line.removeprefix(script.REPORT))["error"] == kind


def test_a_link_that_is_dead_does_not_leave_a_process_that_waits(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "READ_TIMEOUT", 0.05)
    asked, data = wanted(dragoman())
    read_end, write_end = os.pipe()
    os.write(write_end, data.getvalue()[:100])
    before = signal.getsignal(signal.SIGALRM)
    with (
        os.fdopen(read_end, "rb") as source,
        os.fdopen(write_end, "wb"),
        pytest.raises(InstallError, match="no data arrived for"),
    ):
        install(asked, source)
    assert list((home / "versions").iterdir()) == []
    assert signal.getsignal(signal.SIGALRM) == before

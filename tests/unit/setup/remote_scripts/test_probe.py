"""The script that inspects a machine, run locally."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from dragoman.setup.remote_scripts import probe as script
from dragoman.setup.remote_scripts.probe import (
    REPORT,
    c_library,
    configured_kills,
    find_dragoman,
    probe,
)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_report_contains_python_platform_and_programs() -> None:
    report = probe({"dragoman": None, "programs": ["sh", "no-such-program"], "variables": ["PATH"]})
    assert report["python"]["version"] == list(sys.version_info[:3])
    assert report["platform"]["system"] == sys.platform
    assert report["programs"]["sh"] and report["programs"]["no-such-program"] is None
    assert report["variables"] == ["PATH"]
    assert report["free_size"] > 0 and set(report["log_out"]) == {"systemd", "kills", "linger"}
    json.dumps(report)


def test_the_c_library_is_reported_on_linux() -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux has more than one")
    name, version = c_library()
    assert name in ("glibc", "musl") and version[0].isdigit()


def test_musl_is_detected_by_its_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = program(
        tmp_path / "ld-musl-x86_64.so.1", "echo 'musl libc\nVersion 1.2.5' >&2; exit 1"
    )
    monkeypatch.setattr(os, "confstr", lambda _: "")
    monkeypatch.setattr(script, "musl_loaders", lambda: [loader])
    assert c_library() == ("musl", "1.2")


def test_a_working_dragoman_is_preferred_to_a_broken_one(tmp_path: Path) -> None:
    broken = program(tmp_path / "broken", "echo 'no module' >&2; exit 1")
    works = program(
        tmp_path / "works",
        'case "$*" in --version) echo dragoman 1.2.3;;\n'
        '"peers list"*) echo \'{"name": "x", "installed": true}\';;\n'
        '*) echo \'{"card": {"login": "yes"}, "credentials_set": ["KEY"]}\';; esac',
    )
    missing = str(tmp_path / "missing")
    found = find_dragoman([None, missing, broken, works])
    assert found is not None and (found["path"], found["version"]) == (works, "1.2.3")
    (row,) = found["peers"]
    assert (row["login"], row["credentials_set"]) == ("yes", ["KEY"])
    found = find_dragoman([broken])
    assert found is not None and found["problem"] == "no module" and not found["version"]
    assert find_dragoman([missing]) is None


HELLO = json.dumps({"result": {"protocol": 7}})
"""A message that is also a response: a program that sends it back has this protocol."""


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ('echo Welcome; echo "[]"; read hello; echo "$hello"', 7),
        ("exit 2", None),
        ("read hello; echo '{\"result\": {}}'", None),
    ],
)
def test_dragoman_is_asked_for_its_protocol(
    tmp_path: Path, answer: str, number: int | None
) -> None:
    path = program(tmp_path / "dragoman", f'[ "$1" = broker ] || exec echo dragoman 1.0\n{answer}')
    found = find_dragoman([path], HELLO)
    assert found is not None and found["protocol"] == number


def test_a_program_that_never_answers_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "TIMEOUT", 0.2)
    assert script.protocol(program(tmp_path / "dragoman", "exec sleep 60"), HELLO) is None
    assert script.protocol(str(tmp_path / "missing"), HELLO) is None


def test_a_program_with_other_output_is_not_dragoman(tmp_path: Path) -> None:
    found = find_dragoman([program(tmp_path / "other", "echo hello")])
    assert found is not None and found["problem"] == "hello"


def test_the_logind_setting_is_a_boolean_or_unknown() -> None:
    assert configured_kills() in (None, True, False)


def test_the_result_is_one_marked_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    script.main()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line]
    assert line.startswith(REPORT) and json.loads(line[len(REPORT) :])["python"]

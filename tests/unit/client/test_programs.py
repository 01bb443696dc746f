"""Starting a program, and what identifies it for a cache."""

from __future__ import annotations

import sys
from pathlib import Path

from dragoman.client.programs import launch_of, program_at, program_of


def test_a_program_is_its_file_and_of_an_interpreter_its_script(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text("pass")
    found = program_of([sys.executable, str(script), "--acp"])
    assert found is not None and found.path == str(script.resolve()) and found.size == 4
    found = program_of([sys.executable, "--version"])
    assert found is not None and found.path == str(Path(sys.executable).resolve())
    assert program_of(["no-such-program-anywhere"]) is None


def test_launches_of_one_program_are_distinguished_and_keep_their_secrets() -> None:
    assert launch_of(["x", "--key=secret"]) != launch_of(["x", "--key=other"])
    assert launch_of(["x", "-m", "a"]) == launch_of(["/bin/x", "-m", "a"])
    assert "secret" not in launch_of(["x", "--key=secret"])
    assert launch_of([]) == launch_of(["x"])


def test_a_script_behind_options_is_known_by_its_file(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    words = ["python", "-u", "agent.py"]
    missing = launch_of(words, tmp_path)
    script.write_text("pass")
    first = launch_of(words, tmp_path)
    script.write_text("pass  # another one")
    assert len({missing, first, launch_of(words, tmp_path)}) == 3
    assert launch_of(["python", "a\0b"]) != launch_of(["python"])


def test_a_program_at_an_address_is_known_by_it_and_its_secret_is_kept() -> None:
    assert program_at("ws://x/?token=a") != program_at("ws://x/?token=b")
    assert "token" not in program_at("ws://x/?token=a").path

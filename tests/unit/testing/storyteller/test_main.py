"""The program tells the story that it is given, from its words or from a file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dragoman.testing.storyteller import Crash, Say, Story, command, dumps
from dragoman.testing.storyteller.__main__ import main

PROMPT = json.dumps({"id": 1, "method": "prompt", "params": {"text": "hi"}}) + "\n"
RUN_TIMEOUT = 20.0


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, input=PROMPT, capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False
    )


def test_a_story_comes_as_words_or_in_a_file(tmp_path: Path) -> None:
    argv = command(Story((Say("Hello."),)), dialect="oneshot")
    file = tmp_path / "story.json"
    file.write_text(argv[-1], encoding="utf-8")
    for story in (argv[-1], str(file)):
        done = run([*argv[:-1], story])
        assert (done.returncode, done.stderr) == (0, "")
        assert '"content": "Hello."' in done.stdout


def test_a_crash_ends_the_program_in_the_middle() -> None:
    done = run(command(Story((Say("Hello."), Crash(5))), dialect="oneshot"))
    assert done.returncode == 5
    assert "Hello." in done.stdout and "result" not in done.stdout


def test_an_unknown_dialect_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--dialect", "klingon", dumps(Story(()))])
    assert "invalid choice: 'klingon'" in capsys.readouterr().err

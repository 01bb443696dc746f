"""`dragoman verdict` keeps a word about a job, and knows which jobs there are."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.paths import find_paths
from dragoman.store.ledger import Ending, Ledger, ledger_path
from tests.unit.cli.calling import Shell, shell_in
from tests.unit.delegation.test_journal import ATTEMPT


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, monkeypatch, capsys)


def test_a_verdict_is_kept_and_can_be_changed(shell: Shell) -> None:
    with Ledger.open(ledger_path(find_paths().state)) as ledger:
        ledger.finish(ledger.begin("d-1", {}, ATTEMPT), Ending(ended_at=6.0, outcome="ok"))
    said = shell("verdict", "j-1", "bad")
    assert (said.code, said.err) == (0, "alpha (review): bad\n")
    told = json.loads(shell("verdict", "j-1", "good", "--format", "json").out)
    assert (told["verdict"], told["before"], told["peer"]) == ("good", "bad", "alpha")
    quiet = shell("verdict", "j-1", "good", "--format", "quiet")
    assert (quiet.out, quiet.err) == ("", "")


def test_the_last_piece_of_delegated_work_is_meant_by_last(shell: Shell) -> None:
    refused = shell("verdict", "last", "good")
    assert refused.code == 4 and "nothing has been delegated yet" in refused.err
    now = time.time()
    attempt = structs.replace(ATTEMPT, started_at=now)
    with Ledger.open(ledger_path(find_paths().state)) as ledger:
        ledger.finish(ledger.begin("d-1", {}, attempt), Ending(ended_at=now, outcome="ok"))
    assert shell("run", "scout", "where is it defined?", "--cold").code in (0, 1)
    assert shell("verdict", "last", "good").err == "alpha (review): good\n"


def test_an_unknown_job_and_an_unknown_word_are_refused(shell: Shell) -> None:
    assert shell("verdict", "j-1", "bad").code == 4
    assert shell("verdict", "j-1", "so-so").code == 2

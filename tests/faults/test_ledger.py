"""The ledger with real processes: killed, racing, on a full disk, and written by a newer dragoman.

A killed process loses at most the end of the turn it was in: everything it had finished is stored
completely, with what was learned from it, and nothing twice.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import StoreCorrupt, StoreTooNew
from dragoman.store.damage import aside_of
from dragoman.store.ledger import PROCESS_GONE, Ledger
from dragoman.store.ledger.schema import FORM
from dragoman.store.values import Arm
from dragoman.transports.process.identity import ProcessIdentity, ProcessState, state_of
from tests.faults.children import CHILD_TIMEOUT, child, go, heard, last_words, run, small_disk

PRELUDE = """
import dataclasses, itertools, json, resource, sys, time
from pathlib import Path
from msgspec import structs
from dragoman.errors import *
from dragoman.store.values import Arm, Posterior
from dragoman.store.ledger import *
from dragoman.transports.process.identity import own_identity

folder = Path(sys.argv[1])
name = sys.argv[2]
arm = Arm(role="review", size="small", peer="codex")
me = dataclasses.asdict(own_identity())

def tell(**told):
    print(json.dumps(told), flush=True)

def learned(posterior):
    before = posterior or Posterior()
    return structs.replace(before, pulls=before.pulls + 1)

def failed(health):
    return structs.replace(health, failures=health.failures + 1)

def turn(ledger, log, number, reason="r"):
    begun = AttemptRecord(job=f"j-{name}-{number}", decision_id=f"d-{name}-{number}", number=1,
                          peer="codex", role="review", reason=reason, started_at=time.time(),
                          runner=me)
    id = ledger.begin(begun.decision_id, {"why": reason}, begun)
    ended = ledger.finish(id, Ending(ended_at=time.time(), outcome="ok"),
                          learned=(arm, learned), health=failed)
    log.write(logged(EventName.PEER_CALL_COMPLETED, ended, at=time.time()))
"""

WORKING = """
tell(go=True)
log = EventsFile(events_path(folder), max_size=20_000)
with Ledger.open(ledger_path(folder)) as ledger:
    for number in itertools.count():
        turn(ledger, log, number)
        tell(finished=number + 1)
"""

ARM = Arm(role="review", size="small", peer="codex")


def is_alive(runner: dict[str, Any]) -> bool:
    return state_of(ProcessIdentity(**runner)) is not ProcessState.DEAD


def whole_lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(folder.glob("events*.jsonl"))
        for line in file.read_text().splitlines()
    ]


@pytest.mark.parametrize("seed", range(2))
def test_a_process_killed_at_any_moment_loses_at_most_the_unfinished_turn(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    confirmed = 0
    # The first two die while or just after they create the file.
    for life, lived in enumerate((0, 1, chance.randrange(2, 20), chance.randrange(20, 60))):
        with child(PRELUDE + WORKING, tmp_path, f"life{life}") as process:
            told = heard(process)
            assert told == {"go": True}
            for _ in range(lived):
                told = heard(process)
            process.kill()
            confirmed += last_words(process, told).get("finished", 0)
            assert process.wait(CHILD_TIMEOUT) == -signal.SIGKILL
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            attempts = [each for each in ledger.export() if each["type"] == "Attempt"]
            finished = sum(each["outcome"] == "ok" for each in attempts)
            assert confirmed <= finished <= confirmed + 1
            # The end of a turn is stored with everything that follows from it, or not at all.
            belief = ledger.posteriors().get(ARM)
            assert (belief.pulls if belief else 0) == finished
            assert ledger.health("codex").failures == finished
            lost = [each for each in attempts if each["outcome"] is None]
            assert len(lost) <= 1
            ended = ledger.end_orphans(is_alive, lambda attempt: None)
            assert [(each.id, each.error_class) for each in ended] == [
                (each["id"], PROCESS_GONE) for each in lost
            ]
            with ledger.transaction() as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            confirmed = finished
        jobs = [line["job"] for line in whole_lines(tmp_path)]
        assert len(jobs) == len(set(jobs))
        assert confirmed - len(jobs) <= life + 1


RACING = """
sys.stdin.readline()
log = EventsFile(events_path(folder), max_size=20_000)
with Ledger.open(ledger_path(folder)) as ledger:
    for number in range(40):
        turn(ledger, log, number)
tell(done=True)
"""


def test_processes_that_learn_at_once_all_count(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        racing = [
            stack.enter_context(child(PRELUDE + RACING, tmp_path, f"racer{n}")) for n in range(3)
        ]
        go(racing)
        for process in racing:
            assert heard(process) == {"done": True}
            assert process.wait(CHILD_TIMEOUT) == 0
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert ledger.posteriors()[ARM].pulls == 120
        assert ledger.health("codex").failures == 120
        (row,) = ledger.stats("peer")
        assert (row.attempts, row.ok) == (120, 120)
    # The processes changed the files concurrently, and no line is torn, lost or duplicated.
    assert len(list(tmp_path.glob("events*.jsonl"))) > 2
    assert len({line["job"] for line in whole_lines(tmp_path)}) == 120


FILLING = """
log = EventsFile(events_path(folder))
ledger = Ledger.open(ledger_path(folder))
said = []
for number in itertools.count():
    try:
        turn(ledger, log, number, reason=f"{number} " * 400)
    except StoreError as error:
        said.append((type(error).__name__, str(error)))
        break
(folder / "x").unlink()
kept = ledger.posteriors()[arm].pulls
turn(ledger, log, number + 1)
tell(said=said, kept=kept, after=ledger.posteriors()[arm].pulls, number=number,
     lines=len([json.loads(line) for line in events_path(folder).read_text().splitlines()]))
"""


def test_a_full_disk_is_reported_and_keeps_whole_turns_and_whole_lines(tmp_path: Path) -> None:
    inside = small_disk(tmp_path, size="1m", used="400k")
    told = run(PRELUDE + FILLING, tmp_path, "one", inside=inside)
    ((kind, message),) = told["said"]
    assert kind == "StoreFull" and "free some disk space" in message
    assert told["number"] <= told["kept"] <= told["number"] + 1
    assert told["kept"] > 3
    # Once there is space, it continues where it was.
    assert told["after"] == told["kept"] + 1
    assert told["after"] - 1 <= told["lines"] <= told["after"]


def test_a_newer_ledger_is_refused_by_name_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {FORM.version + 1}")
    connection.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(
            StoreTooNew, match=f"newer version of dragoman .*schema version {FORM.version + 1}"
        ):
            Ledger.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_damaged_ledger_is_reported_as_such_and_set_aside_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"not a database at all" * 500)
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="move it away"):
        Ledger.open(path, read_only=True)
    with Ledger.open(path) as ledger:
        (aside,) = aside_of(path)
        assert str(aside) in ledger.replaced
        assert aside.read_bytes() == before
        assert ledger.healths() == {}

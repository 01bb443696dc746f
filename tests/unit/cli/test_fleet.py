"""Usage errors of `dragoman fleet`. `tests/fleet` runs the commands."""

from __future__ import annotations

import time

import pytest
from msgspec import structs

from dragoman.errors import FleetError, FleetUnreachable
from dragoman.fleet import server
from dragoman.fleet.credentials import decode_code
from dragoman.fleet.nkeys import new_key
from dragoman.fleet.team import FleetFolder, FleetKeys, Team, new_team
from tests.unit.cli.calling import Shell


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["invite", "boss", "w1"], "use worker or submitter"),
        (["invite", "worker", "w1"], "no fleet in"),
        (["join", "hello"], "not a join code"),
        (["revoke", "w1"], "no fleet in"),
        (["drain", "w1"], "no fleet in"),
        (["worker", "--slots", "0"], "--slots must be at least 1"),
        (["worker"], "not joined a fleet as a worker"),
        (["workers"], "not joined a fleet as a submitter"),
        (["submit", "execute", "x", "--n", "0"], "--n must be at least 1"),
        (["submit", "execute", "x", "--timeout", "0"], "--timeout must be greater than 0"),
        (["submit", "execute", "x"], "not joined a fleet as a submitter"),
        (["submit", "execute", " "], "the prompt is empty"),
        (["jobs"], "not joined a fleet as a submitter"),
        (["watch", "f1"], "not joined a fleet as a submitter"),
        (["cancel", "f1"], "not joined a fleet as a submitter"),
        (["apply", "f1"], "not joined a fleet as a submitter"),
    ],
)
def test_usage_errors_are_reported(shell: Shell, words: list[str], problem: str) -> None:
    said = shell("fleet", *words)
    assert said.code == 2
    assert problem in said.err


@pytest.mark.parametrize(
    ("failure", "will"),
    [
        (None, "will not apply that until"),
        (FleetUnreachable("no", may_have_run=True), "has not confirmed that; it will apply it"),
        (FleetError("the server did not accept the revocation"), "will not apply that until"),
    ],
)
def test_a_member_is_revoked_also_while_the_server_does_not_run_or_apply_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, failure: FleetError | None, will: str
) -> None:
    folder = FleetFolder(shell.home / "keys")
    keys = folder.prepare().with_team(new_team("team"))
    folder.change(structs.replace(keys, urls=("nats://127.0.0.1:1",)))
    code = decode_code(folder.invite("worker", "w1", team=None, now=int(time.time())))
    public = new_key("user").public
    folder.admit(code.id, public, team="team", now=int(time.time()))

    async def fail(keys: FleetKeys, team: Team) -> None:
        assert failure is not None
        raise failure

    if failure is not None:
        monkeypatch.setattr(server, "tell_server", fail)
    said = shell("fleet", "revoke", "w1", "--dir", str(folder.path))
    assert said.code != 0
    assert f"w1 is revoked, but the server {will}" in said.err
    # It cannot be revoked again, so there is nothing to try again.
    assert "restart the server" in said.err and "may help" not in said.err
    assert public in folder.read().team(None).revoked


def test_a_worker_for_an_unknown_peer_is_refused_with_the_nearest(shell: Shell) -> None:
    said = shell("fleet", "worker", "--peers", "codx")
    assert (said.code, "there is no peer 'codx'; did you mean codex?" in said.err) == (2, True)

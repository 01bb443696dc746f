"""Delegation with real child processes: what is decided, done, kept, learned and told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman import Answer, Question, events
from dragoman.delegation import DelegationRequest, decide_for, read_agent
from dragoman.delegation.journal import give_verdict
from dragoman.delegation.routing import Reason
from dragoman.errors import DelegationInvalid, NoPeer, UnknownRole, UsageError
from dragoman.policy import preset
from dragoman.runs import run
from dragoman.store.ledger import Ledger, ledger_path
from tests.aio import aio
from tests.integration.cli_shell import AGENT, TIMEOUT, Cli, cli_in, warm_cli
from tests.integration.delegated_peers import QUICK, Bench, add_peer, bench_in, read_lines
from tests.unit.delegation.worktree.repositories import commit_all, git


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


def commit(folder: Path) -> None:
    """Make a repository of a folder."""
    (folder / "kept.txt").write_text("one\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def text_of(file: str | None) -> str:
    assert file is not None
    return Path(file).read_text()


def reasons(bench: Bench, role: str = "review") -> dict[str, Reason]:
    wish = DelegationRequest(role=role, prompt="x", workspace=bench.work)
    decision = decide_for(wish, bench.place())
    return {one.peer: one.reason for one in decision.passed_over}


# -- the work


@aio
async def test_work_in_a_copy_gives_a_patch_and_touches_nothing(bench: Bench) -> None:
    commit(bench.work)
    bench.peer("alpha", "write")
    bench.settings("alpha")
    done = await bench.delegate(isolate=True)
    assert done.ok and done.final.isolated
    assert not (bench.work / "done.txt").exists()
    assert "done.txt" in text_of(done.final.patch)
    assert list((bench.state / "worktrees").iterdir()) in (
        [],
        [bench.state / "worktrees/.sweeping"],
    )


@aio
async def test_a_patch_is_applied_if_the_check_passes(bench: Bench) -> None:
    commit(bench.work)
    bench.peer("alpha", "write")
    bench.settings("alpha")
    bad = await bench.delegate(isolate=True, apply=True, check="false", fallback="none")
    assert not bad.ok and bad.outcome.value == "failed" and not (bench.work / "done.txt").exists()
    assert bad.final.patch is not None
    good = await bench.delegate(isolate=True, apply=True, check="test -f done.txt")
    assert good.ok and [change.path for change in good.final.files] == ["done.txt"]
    assert (bench.work / "done.txt").read_text() == "done\n"
    verdicts = [bench.attempts(done.job)[0].verdict for done in (bad, good)]
    assert verdicts == ["bad", "good"]


@aio
async def test_a_patch_that_does_not_fit_any_more_is_kept_and_told(bench: Bench) -> None:
    commit(bench.work)
    bench.peer("alpha", "write")
    bench.settings("alpha")
    mine = bench.work / "done.txt"
    done = await bench.delegate(isolate=True, apply=True, check=f"echo mine > {mine}")
    assert not done.ok and done.outcome.value == "failed" and done.final.applied is not None
    assert [one.path for one in done.final.applied.conflicts] == ["done.txt"]
    assert mine.read_text() == "mine\n" and "done.txt" in text_of(str(done.final.applied.kept))
    assert any("conflict: done.txt" in line for line in done.lines())


@aio
async def test_after_a_failure_in_a_copy_another_may_try(bench: Bench) -> None:
    commit(bench.work)
    bench.peer("alpha", "write-and-crash")
    bench.peer("beta", "write")
    bench.settings("alpha", "beta")
    done = await bench.delegate(isolate=True, apply=True)
    assert [report.outcome.value for report in done.attempts] == ["crashed", "ok"]
    assert (bench.work / "done.txt").exists() and not (bench.work / "half.txt").exists()


@aio
async def test_what_was_changed_is_seen_on_the_disk(bench: Bench) -> None:
    bench.peer("alpha", "write")
    bench.settings("alpha")
    done = await bench.delegate()
    assert [change.path for change in done.final.files] == ["done.txt"]
    assert bench.attempts(done.job)[0].files_changed == 1


@aio
async def test_a_role_has_its_prefix_and_a_prompt_its_lineage(bench: Bench) -> None:
    bench.peer("alpha", "ok", more='[role_prefixes]\nreview = "/review"\n')
    bench.settings("alpha")
    done = await bench.delegate("look")
    assert bench.told("alpha") == ["/review look"]
    assert bench.told("alpha", "starts") == ["1"]
    meta = json.loads((bench.folder / "alpha.meta").read_text())
    assert meta["dragoman"] == {"depth": 1, "lineage": [done.job]}


# -- from a program


@aio
async def test_a_program_delegates_with_the_settings_of_the_command(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.peer("alpha", "crash")
    bench.peer("beta", "ask")
    bench.settings("alpha", "beta")
    for name, value in bench.place().environ.items():
        monkeypatch.setenv(name, value)
    seen: list[events.Event] = []
    asked: list[str] = []

    def permit(question: Question) -> Answer:
        asked.append(question.title)
        return Answer.ALLOW_ONCE

    done = await dragoman.delegate(
        "review", "look at it", workspace=bench.work, permit=permit, on_event=seen.append
    )
    assert done.ok and done.answered == "beta" and asked == ["Write"]
    assert [(one.peer, one.ok) for one in done.attempts] == [("alpha", False), ("beta", True)]
    assert done.text == "written"
    assert any(isinstance(event, events.MessageDelta) for event in seen)
    assert repr(done).startswith("Delegation('review', ok by beta, 2 attempts, job='j-")
    refused = await dragoman.delegate("review", "look at it", workspace=bench.work, peer="beta")
    assert refused.outcome is events.Outcome.DENIED and len(asked) == 1
    (bench.config / "config.toml").write_text("permisions = 'approve-all'\n")
    with pytest.raises(dragoman.errors.ConfigInvalid, match="permisions"):
        await dragoman.delegate("review", "look at it", workspace=bench.work)


# -- permissions


@aio
async def test_a_refused_permission_does_not_try_the_next_peer(bench: Bench) -> None:
    bench.peer("alpha", "ask")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta")
    done = await bench.delegate(check="echo checked")
    assert done.outcome.value == "denied" and [one.title for one in done.final.denials] == ["Write"]
    assert "all is well" in done.text and not done.ok
    assert done.final.check is not None and done.final.check.ok, "the check still runs"
    assert bench.told("beta", "starts") == []
    assert bench.attempts(done.job)[-1].outcome == "denied"
    with Ledger.open(ledger_path(bench.state), read_only=True) as ledger:
        assert ledger.posteriors() == {}, "a refusal says nothing about the peer"
    allowed = await bench.delegate(permissions="approve-all")
    assert allowed.ok and (bench.work / "done.txt").exists()


@aio
async def test_a_delegated_peer_may_do_no_more_than_its_delegator(bench: Bench) -> None:
    bench.peer("alpha", "ask")
    bench.settings("alpha", more=f"max_depth = 2\n{QUICK}")
    reading = json.dumps({"preset": "approve-reads"})
    for environ in ({"DRAGOMAN_CEILING": reading}, {}):
        bench.environ = {"DRAGOMAN_DEPTH": "1", **environ}
        done = await bench.delegate(permissions="approve-all")
        assert done.outcome.value == "denied"
        assert (bench.folder / "alpha.chosen").read_text() == "n"
    assert not (bench.work / "done.txt").exists()
    bench.environ["DRAGOMAN_CEILING"] = json.dumps({"preset": preset("approve-all").preset})
    assert (await bench.delegate(permissions="approve-all")).ok


@aio
async def test_too_deep_is_an_end_also_for_last_resorts(bench: Bench) -> None:
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    bench.environ = {"DRAGOMAN_DEPTH": "1", "DRAGOMAN_LINEAGE": "j-above"}
    with pytest.raises(NoPeer, match="delegated work already"):
        await bench.delegate()
    assert bench.told("alpha", "starts") == []
    assert [line["event"] for line in bench.events()] == ["delegation_decided"]


@aio
async def test_a_peer_that_delegates_in_turn_is_stopped_also_with_an_environment_of_its_own(
    bench: Bench,
) -> None:
    bench.peer("alpha", "nest")
    bench.settings("alpha", more="")
    done = await bench.delegate()
    assert done.text == "7 7"


# -- limits and health


@aio
async def test_a_used_up_budget_excludes_a_peer_and_then_none_is_left(bench: Bench) -> None:
    bench.peer("alpha", "spend")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta", more=f"[peer.alpha.limits]\nday_cost = 0.2\n{QUICK}")
    first = await bench.delegate()
    assert first.answered == "alpha" and first.costs == {"USD": 0.25}
    assert reasons(bench)["alpha"] is Reason.OVER_BUDGET
    assert (await bench.delegate()).answered == "beta"
    bench.settings("alpha", "beta", more="[limits]\nday_turns = 2\n")
    with pytest.raises(NoPeer) as nobody:
        await bench.delegate(fallback="peers")
    assert nobody.value.over_budget


@aio
async def test_a_turn_that_costs_too_much_is_stopped_and_no_other_peer_is_asked(
    bench: Bench,
) -> None:
    bench.peer("alpha", "tokens")
    bench.peer("beta", "ok")
    bench.settings(
        "alpha", "beta", more="[limits]\nturn_cost = 1.0\n[timeouts]\ncancel_grace = 2\n"
    )
    done = await bench.delegate()
    assert len(done.attempts) == 1 and done.final.error_class == "over_budget"
    assert "5 dollars; the limit is 1" in done.stopped


@aio
async def test_a_quota_parks_a_peer_until_it_resets_and_a_login_with_its_command(
    bench: Bench,
) -> None:
    bench.peer("alpha", "quota")
    bench.peer("beta", "locked", more='[credentials]\nlogin = "run `beta login`"\n')
    bench.peer("gamma", "ok")
    bench.settings("alpha", "beta", "gamma")
    done = await bench.delegate()
    assert done.answered == "gamma"
    with Ledger.open(ledger_path(bench.state), read_only=True) as ledger:
        quota, login = ledger.health("alpha"), ledger.health("beta")
    assert quota.parked_until is not None and quota.last_failed_at is not None
    assert 7100 < quota.parked_until - quota.last_failed_at <= 7200
    (park,) = login.logins.values()
    assert park.why == "it requires a login: log in with `beta login`"
    assert [line["peer_id"] for line in bench.events() if line["event"] == "peer_parked"] == [
        "alpha",
        "beta",
    ]
    again = await bench.delegate()
    assert [report.peer for report in again.attempts] == ["gamma"]
    assert reasons(bench)["alpha"] is reasons(bench)["beta"] is Reason.PARKED


@aio
async def test_a_peer_that_fails_again_and_again_is_left_alone(bench: Bench) -> None:
    bench.peer("alpha", "crash")
    bench.settings("alpha")
    for _ in range(3):
        await bench.delegate(fallback="none")
    assert reasons(bench)["alpha"] is Reason.BROKEN
    with pytest.raises(NoPeer, match="failed too often"):
        await bench.delegate(fallback="none")
    assert len(bench.told("alpha")) == 3


# -- learning


@aio
async def test_what_peers_earned_decides_where_that_is_wanted(bench: Bench) -> None:
    bench.peer("alpha", "error")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta")
    for _ in range(2):
        done = await bench.delegate()
    with Ledger.open(ledger_path(bench.state), read_only=True) as ledger:
        beliefs = {arm.peer: posterior for arm, posterior in ledger.posteriors().items()}
    assert beliefs["alpha"].mean < 0.5 < beliefs["beta"].mean
    assert {beliefs[name].pulls for name in beliefs} == {2}
    assert done.decision.order == "fixed" and set(done.decision.shadow) == {"alpha", "beta"}
    bench.settings("alpha", "beta", more=f'adaptive = "on"\n{QUICK}')
    assert (await bench.delegate()).decision.order == "bandit"


@aio
async def test_a_verdict_takes_back_what_was_earned_and_gives_it_again(bench: Bench) -> None:
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    done = await bench.delegate()
    paths = bench.place().paths

    def mean() -> float:
        with Ledger.open(ledger_path(bench.state), read_only=True) as ledger:
            (posterior,) = ledger.posteriors().values()
        assert posterior.pulls == 1
        return posterior.mean

    earned = mean()
    for word, expected in (("bad", False), ("bad", False), ("good", True), ("good", True)):
        give_verdict(done.job, word, paths=paths)  # type: ignore[arg-type]
        assert (mean() == pytest.approx(earned)) is expected
        assert mean() <= earned + 1e-9
    kept = bench.attempts(done.job)[0]
    assert (kept.verdict, kept.verdict_source) == ("good", "user")


# -- who


@aio
async def test_an_unclaimed_role_is_refused_with_the_list(bench: Bench) -> None:
    bench.peer("alpha", "ok")
    with pytest.raises(UnknownRole, match="did you mean review.*the roles are debug, execute"):
        await bench.delegate(role="revue")


def test_an_agent_file_names_the_peer_and_the_role(bench: Bench) -> None:
    bench.peer("alpha", "ok")
    catalogue = bench.place().catalogue
    file = bench.work / "agent.md"
    file.write_text("---\nname: x\ndelegate_to: alpha-review\n---\nBe strict.\n")
    assigned = read_agent(file, catalogue)
    assert (assigned.peer, assigned.role) == ("alpha", "review")
    assert assigned.prompt("look") == "Be strict.\n\nlook"
    file.write_text("---\ndelegate_to: none\n---\n")
    with pytest.raises(UsageError, match="work is not delegated"):
        read_agent(file, catalogue)
    file.write_text("---\ndelegate_to: alpha-plan\n---\n")
    with pytest.raises(DelegationInvalid):
        read_agent(file, catalogue)
    file.write_text("Just words.\n")
    assert read_agent(file, catalogue).role is None


# -- from the command line


def test_the_command_tells_the_same_in_words_in_json_and_as_a_job(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    config = cli.home / "config_home"
    add_peer(config, cli.home, "alpha", "error", ("review",))
    add_peer(config, cli.home, "beta", "ok", ("review",))
    (config / "config.toml").write_text(f'enabled_peers = ["alpha", "beta"]\n{QUICK}')
    (cli.cwd / "agent.md").write_text("---\ndelegate_to: beta-review\n---\nBe strict.\n")
    said = cli("delegate", "review", "look")
    assert said.code == 0 and said.out.startswith("beta did: look")
    job = said.err.splitlines()[0].removeprefix("dragoman: job ")
    assert "1. alpha: failed after" in said.err and "2. beta: ok after" in said.err
    result = cli("jobs", "result", job, "--format", "json")
    told = json.loads(result.out)
    assert (told["peer"], told["outcome"], told["text"]) == ("beta", "ok", "beta did: look")
    assert "beta did: look" in cli("jobs", "watch", job).out
    lines = [json.loads(line) for line in cli("delegate", "review", "look", "--format", "json").out
             .splitlines()]  # fmt: skip
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "JobBegun" and kinds[-1] == "Delegation"
    assert [line["peer"] for line in lines if line["type"] == "Attempt"] == ["alpha", "beta"]
    assert lines[-1]["attempts"][0]["failure"]["message"] == "it went wrong (-32603)"
    assert cli("delegate", "review", "look", "--format", "quiet").out == "beta did: look\n"
    by_file = cli("delegate", "--agent", "agent.md", "look", "--format", "quiet")
    assert by_file.out == "beta did: Be strict.\n\nlook\n"
    assert cli("verdict", job, "bad").code == 0
    assert cli("verdict", "j-nonesuch", "bad").code == 4
    names = [line["event"] for line in read_lines(cli.home / "state_home" / "events.jsonl")]
    assert names[-1] == "verdict_recorded"


def test_an_answer_that_was_cut_is_reported_as_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = cli_in(tmp_path)
    config = cli.home / "config_home"
    add_peer(config, cli.home, "alpha", "ok", ("review",))
    (config / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
    whole = cli("delegate", "review", "look", "--format", "json")
    assert json.loads(whole.out.splitlines()[-1])["attempts"][0]["truncated"] is False
    monkeypatch.setattr(run, "ANSWER_SIZE", 5)
    cut = cli("delegate", "review", "look")
    assert "the answer is longer than 5 characters and was cut there" in cut.err
    told = cli("delegate", "review", "look", "--format", "json")
    (attempt,) = json.loads(told.out.splitlines()[-1])["attempts"]
    assert (attempt["text"], attempt["truncated"]) == ("alpha", True)


def test_the_exit_code_says_why_nothing_was_done(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    config = cli.home / "config_home"
    add_peer(config, cli.home, "alpha", "auth", ("review",))
    (config / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
    assert cli("delegate", "review", "look", "--no-fallback").code == 6
    parked = cli("delegate", "review", "look", "--strict", "--format", "json")
    assert parked.code == 7 and json.loads(parked.out)["error"] == "no_peer"
    assert cli("delegate", "revue", "look").code == 2
    assert cli("delegate", "review", "look", "--strict", "--no-fallback").code == 2
    assert cli("delegate", "look").code == 2
    explained = json.loads(cli("explain", "review", "--format", "json").out)
    assert [one["peer"] for one in explained["candidates"]] == ["scout"]
    peers = [one["peer"] for one in explained["passed_over"]]
    assert "alpha" in peers and len(peers) == len(set(peers))
    assert os.listdir(cli.cwd) == []


KEYED = '[credentials]\nenv = ["ALPHA_KEY"]\nlogin = "set ALPHA_KEY"\n'


def test_a_missing_key_parks_a_peer_where_it_is_missing_until_it_works(tmp_path: Path) -> None:
    bare = cli_in(tmp_path)
    config, how = bare.home / "config_home", bare.home / "alpha.how"
    add_peer(config, bare.home, "alpha", "keyed", ("review",), more=KEYED)
    (config / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
    keyed = replace(bare, extra={**bare.extra, "ALPHA_KEY": "k"})
    work = ("delegate", "review", "look", "--strict")

    def listed(cli: Cli) -> Any:
        rows = map(json.loads, cli("peers", "list", "--format", "json").out.splitlines())
        return next(row for row in rows if row["name"] == "alpha")

    assert bare.child(*work).code == 6
    assert bare(*work).code == 7, "it is parked where the key is missing"
    assert listed(bare)["parked"]["why"] and "parked until" in " ".join(listed(bare)["notes"])
    assert keyed.child(*work).code == 0, "and nowhere else"
    assert listed(keyed)["parked"] is None
    how.write_text("ok")
    assert bare(*work).code == 7
    assert bare("run", "alpha", "look").code == 0
    assert bare(*work).code == 0, "a run that succeeded has ended it"
    for end in (("unpark",), ("enable",), ("verify", "--turns")):
        how.write_text("auth")
        assert (bare(*work).code, bare(*work).code) == (6, 7)
        how.write_text("ok")
        assert "unpark alpha" in bare("peers", "show", "alpha").out
        assert bare("peers", *end, "alpha").code == 0
        assert bare(*work).code == 0
    assert bare("peers", "unpark", "nonesuch").code == 2


def test_a_peer_that_failed_too_often_is_used_again_after_a_run_that_succeeded(
    tmp_path: Path,
) -> None:
    cli = cli_in(tmp_path)
    config, how = cli.home / "config_home", cli.home / "alpha.how"
    add_peer(config, cli.home, "alpha", "error", ("review",))
    (config / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
    work = ("delegate", "review", "look", "--strict")
    for end in (("run", "alpha", "look"), ("peers", "unpark", "alpha")):
        how.write_text("error")
        assert [cli(*work).code for _ in range(3)] == [1, 1, 1]
        refused = cli(*work)
        assert refused.code == 7 and "`dragoman peers unpark alpha`" in refused.err
        how.write_text("ok")
        assert cli(*end).code == 0
        assert cli(*work).code == 0


def test_a_job_without_a_caller_unparks_its_peer_where_it_succeeded() -> None:
    with warm_cli() as bare:
        config, how = bare.home / "config_home", bare.home / "alpha.how"
        add_peer(config, bare.home, "alpha", "keyed", ("review",), more=KEYED)
        (config / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
        keyed = replace(bare, extra={**bare.extra, "ALPHA_KEY": "k"})
        work = ("delegate", "review", "look", "--strict")

        def is_parked(cli: Cli) -> bool:
            told = json.loads(cli("explain", "review", "--format", "json").out)
            reasons = {one["peer"]: one["reason"] for one in told["passed_over"]}
            return reasons.get("alpha") == "parked"

        def succeed_without_waiting(cli: Cli) -> None:
            job = cli("run", "alpha", "look", "--no-wait").out.strip()
            done = cli("jobs", "result", job, "--wait")
            assert done.code == 0, done.err

        assert bare(*work).code == 6
        assert is_parked(bare)
        succeed_without_waiting(keyed)
        assert is_parked(bare), "the login is still missing here"
        how.write_text("ok")
        succeed_without_waiting(bare)
        assert not is_parked(bare)
        assert bare(*work).code == 0


def test_a_job_without_a_caller_that_only_says_its_error_is_not_a_success() -> None:
    with warm_cli() as cli:
        config = cli.home / "config_home"
        more = '[quirks]\nerror_texts = ["Error: "]\n'
        add_peer(config, cli.home, "alpha", "error-text", ("review",), more=more)
        (config / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
        work = ("delegate", "review", "look", "--strict")
        assert (cli(*work).code, cli(*work).code) == (6, 7)
        waited = cli("run", "alpha", "look")
        job = cli("run", "alpha", "look", "--no-wait").out.strip()
        done = cli("jobs", "result", job, "--wait")
        assert (waited.code, done.code) == (6, 6)
        assert "Error: Authentication failed" in done.err
        assert cli(*work).code == 7, "it is still parked"


@pytest.mark.parametrize("broker", ["1", "0"])
def test_a_denied_delegation_ends_with_5_is_checked_and_not_given_to_another(broker: str) -> None:
    with warm_cli() as cli:
        cli.extra["DRAGOMAN_WARM"] = broker
        config = cli.home / "config_home"
        for name, how in (("alpha", "ask"), ("beta", "ok")):
            add_peer(config, cli.home, name, how, ("review",))
        (config / "config.toml").write_text(f'enabled_peers = ["alpha", "beta"]\n{QUICK}')
        words = ("delegate", "review", "look", "--approve-reads", "--format", "json")
        for check, passed in (("true", True), ("false", False)):
            done = cli(*words, "--check", check)
            told = json.loads(done.out.splitlines()[-1])
            assert (done.code, told["exit_code"], told["outcome"]) == (5, 5, "denied"), done
            (attempt,) = told["attempts"]
            assert (attempt["peer"], attempt["check"]["ok"]) == ("alpha", passed)
            assert attempt["text"] == "it is not needed, all is well"
        shown = cli("delegate", "review", "look", "--approve-reads")
        assert shown.code == 5 and "refused: Write" in shown.err
        with Ledger.open(ledger_path(cli.home / "state_home")) as ledger:
            assert ledger.posteriors() == {}
            assert ledger.health("alpha").failures == 0
        assert cli("delegate", "review", "look", "--approve-all").code == 0


def test_a_card_of_a_shell_without_the_key_keeps_no_other_shell_from_the_peer(
    tmp_path: Path,
) -> None:
    bare = cli_in(tmp_path)
    config = bare.home / "config_home"
    add_peer(config, bare.home, "alpha", "keyed", ("review",), more=KEYED)
    (config / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
    keyed = replace(bare, extra={**bare.extra, "ALPHA_KEY": "k"})
    tried = bare("peers", "verify", "alpha", "--turns")
    assert tried.code == 10 and "a turn failed; it requires a login" in tried.out
    assert keyed("peers", "verify", "alpha", "--turns").code == 0
    assert bare("peers", "verify", "alpha", "--turns").code == 10
    work = ("delegate", "review", "look", "--strict")
    done = keyed.child(*work)
    assert done.code == 0, done.err
    assert (bare(*work).code, bare(*work).code) == (6, 7)


def test_a_peer_that_was_named_does_the_work_or_the_command_fails(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    config = cli.home / "config_home"
    add_peer(config, cli.home, "alpha", "ok", ("execute",))
    add_peer(config, cli.home, "beta", "error", ("execute",))
    settings = config / "config.toml"
    settings.write_text(f'enabled_peers = ["alpha", "beta"]\n{QUICK}')
    named = cli.child("delegate", "review", "look", "--peer", "alpha", "--format", "json")
    (attempt,) = json.loads(named.out.splitlines()[-1])["attempts"]
    assert named.code == 0 and attempt["peer"] == "alpha"
    failed = cli("delegate", "review", "look", "--peer", "beta", "--format", "json")
    attempts = json.loads(failed.out.splitlines()[-1])["attempts"]
    assert failed.code == 1 and [each["peer"] for each in attempts] == ["beta"]
    settings.write_text(f'enabled_peers = ["beta"]\n{QUICK}')
    passed_over = cli("delegate", "review", "look", "--peer", "alpha")
    assert passed_over.code == 7
    assert "alpha" in passed_over.err and "it is not enabled" in passed_over.err


def test_a_model_that_a_named_peer_does_not_have_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    folder = cli.home / "config_home" / "peers"
    folder.mkdir(parents=True)
    (folder / "alpha.toml").write_text(
        'name = "alpha"\ntitle = "Alpha"\nroles = ["review"]\n'
        f"[[launch]]\ncommand = {json.dumps(list(AGENT))}\n"
    )
    (folder.parent / "config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
    assert cli("peers", "verify", "alpha").code == 0
    work = ("delegate", "review", "settings", "--peer", "alpha", "--format", "json")
    for _ in range(4):
        done = cli(*work, "-m", "nope")
        assert done.code == 2, done
        (attempt,) = json.loads(done.out.splitlines()[-1])["attempts"]
        assert attempt["outcome"] == "unsupported"
        assert "alpha has no model 'nope'" in attempt["failure"]["message"]
    # Its card has the model in another case, and four mistakes of the caller were not its own.
    good = cli(*work, "-m", "LARGE")
    assert good.code == 0, good.err
    assert "model large-preview" in json.loads(good.out.splitlines()[-1])["text"]


def test_roles_are_given_by_the_settings_and_shown(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    config = cli.home / "config_home"
    add_peer(config, cli.home, "alpha", "ok", ("execute",))
    settings = config / "config.toml"
    enabled = f'enabled_peers = ["alpha"]\n{QUICK}'
    settings.write_text(f'{enabled}[peer.alpha]\nroles = ["review"]\n[peer.codex]\nroles = []\n')
    done = cli("delegate", "review", "look", "--format", "json")
    assert json.loads(done.out.splitlines()[-1])["attempts"][0]["peer"] == "alpha"
    shown = json.loads(cli("peers", "show", "alpha", "--format", "json").out)
    assert shown["roles"] == ["review"]
    assert "roles       none" in cli("peers", "show", "codex").out
    settings.write_text(f'{enabled}[peer.alpha]\nroles = ["Re View"]\n')
    broken = cli("delegate", "review", "look")
    assert broken.code == 2 and "peer.alpha.roles" in broken.err


def test_a_person_at_the_terminal_is_asked_for_permissions(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    config = cli.home / "config_home"
    add_peer(config, cli.home, "alpha", "ask", ("review",))
    (config / "config.toml").write_text('enabled_peers = ["alpha"]\n')
    with cli.terminal("delegate", "review", "look") as terminal:
        terminal.expect("allow?")
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert (cli.cwd / "done.txt").read_text() == "done\n"


def started(cli: Cli, *words: str) -> tuple[subprocess.Popen[str], str]:  # noqa: TID251 - a type
    """The command as a program of its own, and the job that it says it is."""
    command = subprocess.Popen(  # noqa: TID251 - the command under test, which is interrupted
        cli.argv(*words), cwd=cli.cwd, env=cli.env, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert command.stderr is not None
    return command, command.stderr.readline().strip().removeprefix("dragoman: job ")


def hanging(tmp_path: Path) -> Cli:
    cli = cli_in(tmp_path)
    config = cli.home / "config_home"
    add_peer(config, cli.home, "alpha", "hang", ("review",))
    add_peer(config, cli.home, "beta", "ok", ("review",))
    (config / "config.toml").write_text('enabled_peers = ["alpha", "beta"]\n')
    return cli


def until_prompted(cli: Cli) -> None:
    until_lines(cli.home / "alpha.prompts")


def until_lines(file: Path) -> None:
    give_up_at = time.monotonic() + TIMEOUT
    while not read_lines(file):
        assert time.monotonic() < give_up_at, f"{file} stays empty"
        time.sleep(0.02)


def test_a_job_is_cancelled_from_another_shell_and_no_other_peer_is_asked(tmp_path: Path) -> None:
    cli = hanging(tmp_path)
    command, job = started(cli, "delegate", "review", "look")
    with command:
        until_prompted(cli)
        assert cli("jobs", "cancel", job).code == 0
        assert command.wait(TIMEOUT) == 130
        assert "no other peer was tried: it was interrupted" in str(
            command.stderr and command.stderr.read()
        )
    assert read_lines(cli.home / "beta.starts") == []
    told = json.loads(cli("jobs", "result", job, "--format", "json").out)
    assert (told["state"], told["outcome"]) == ("ended", "cancelled")


@pytest.mark.parametrize("checked", [True, False])
def test_work_that_was_finished_after_a_cancel_is_not_applied_if_it_was_not_checked(
    tmp_path: Path, checked: bool
) -> None:
    cli = hanging(tmp_path)
    (cli.home / "alpha.how").write_text("finish-at-cancel")
    git(cli.cwd, "init", "-q")
    (cli.cwd / "a.txt").write_text("a\n")
    commit_all(cli.cwd)
    check = ["--check", "false"] if checked else []
    command, job = started(cli, "delegate", "review", "look", "--isolate", "--apply", *check)
    with command:
        until_prompted(cli)
        assert cli("jobs", "cancel", job).code == 0
        code = command.wait(TIMEOUT)
        told = str(command.stderr and command.stderr.read())
    assert (code, (cli.cwd / "done.txt").exists()) == ((130, False) if checked else (0, True)), told
    assert ("interrupted before the check" in told) is checked
    assert ("the patch is" in told) is checked


def test_a_delegation_that_is_killed_is_written_off_by_the_next_one(tmp_path: Path) -> None:
    cli = hanging(tmp_path)
    command, job = started(cli, "delegate", "review", "look")
    with command:
        until_prompted(cli)
        command.kill()
        command.wait(TIMEOUT)
    told = json.loads(cli("jobs", "result", job, "--format", "json").out)
    assert (told["state"], told["outcome"]) == ("ended", "crashed")
    assert cli("delegate", "review", "look", "--peer", "beta").code == 0
    exported = [json.loads(line) for line in cli("ledger", "export").out.splitlines()]
    ends = [line["outcome"] for line in exported if line["type"] == "Attempt"]
    assert ends == ["crashed", "ok"] and len(read_lines(cli.home / "alpha.prompts")) == 1


def test_the_changes_of_a_delegation_that_was_killed_are_named_by_the_next_one(
    tmp_path: Path,
) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "write-and-hang")
    command, _ = started(cli, "delegate", "review", "look", "--isolate")
    with command:
        until_lines(cli.home / "alpha.writes")
        command.kill()
        command.wait(TIMEOUT)
    (cli.home / "alpha.how").write_text("ok")
    done = cli("delegate", "review", "look")
    assert done.code == 0, done.err
    found = re.search(r"was killed; its changes are (\S+\.patch)", done.err)
    assert found and "+half" in Path(found[1]).read_text(), done.err
    assert "was killed" not in cli("delegate", "review", "look").err


# -- repositories that name programs


def prepared(cli: Cli, how: str) -> None:
    """A repository to work in, and a peer."""
    add_peer(cli.home / "config_home", cli.home, "alpha", how, ("review",))
    (cli.home / "config_home/config.toml").write_text(f'enabled_peers = ["alpha"]\n{QUICK}')
    git(cli.cwd, "init", "-q")
    (cli.cwd / "a.txt").write_text("a\n")
    commit_all(cli.cwd)


def asked(cli: Cli) -> int:
    prompts = cli.home / "alpha.prompts"
    return len(prompts.read_text().splitlines()) if prompts.exists() else 0


def test_no_program_of_a_repository_runs_and_no_peer_is_blamed_for_it(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "write")
    ran = cli.home / "ran"
    program = f"touch {ran}; cat"
    for key in (
        *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.fsmonitor"),
        *("core.pager", "core.editor", "core.askPass", "core.sshCommand", "credential.helper"),
        *("diff.external", "diff.evil.command", "diff.evil.textconv", "core.alternateRefsCommand"),
    ):
        git(cli.cwd, "config", key, program)
    with (cli.cwd / ".git/config").open("a") as file:
        for event in ("post-checkout", "post-index-change", "reference-transaction"):
            file.write(f'[hook "evil-{event}"]\n\tevent = {event}\n\tcommand = touch {ran}\n')
    hooks = cli.cwd / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / name).chmod(0o755)
    (cli.cwd / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    (cli.cwd / "a.txt").write_text("changed\n")
    for _ in range(4):
        done = cli("delegate", "review", "look", "--isolate")
        assert done.code == 1 and asked(cli) == 0
        assert "the filter 'evil' is defined only by the repository" in done.err
        assert "git config --global filter.evil.clean" in done.err
        assert "workspace has a problem" in done.err
    # Without a copy nothing of it is needed, and the peer was not given up.
    done = cli("delegate", "review", "look", "--approve-all")
    assert done.code == 0 and asked(cli) == 1, done.err
    assert not ran.exists()


def test_work_in_a_copy_ends_with_its_diffstat_and_the_command_that_applies_it(
    tmp_path: Path,
) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "write")
    done = cli("delegate", "review", "look", "--isolate")
    assert done.code == 0, done.err
    assert "done.txt +1 -0" in done.err and "1 file changed, +1 -0 lines" in done.err
    (command,) = re.findall(r"apply it: (git .+)", done.err)
    assert not (cli.cwd / "done.txt").exists()
    elsewhere = cli.home
    assert subprocess.run(command, shell=True, cwd=elsewhere).returncode == 0
    assert (cli.cwd / "done.txt").read_text() == "done\n"


def test_a_denied_delegation_is_not_a_success_and_ends_with_its_own_code(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "ask")
    done = cli("delegate", "review", "look", "--deny-all")
    assert done.code == 5 and "1. alpha: denied after" in done.err
    assert "try again" not in done.err and "--approve-all" in done.err
    assert "--deny-all (or `permissions`" in done.err and "at the prompt" not in done.err
    assert "0 of 1 (0%)" in cli("stats").out


def test_a_program_that_is_missing_is_reported_without_the_whole_path(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    done = cli("run", "hello", "--", "no-such-program")
    assert done.code == 1 and cli.env["PATH"] not in done.err
    assert "'no-such-program' was not found: it is not on the PATH, which has " in done.err


def test_a_check_that_fails_is_the_first_that_is_said(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "write")
    done = cli("delegate", "review", "look", "--approve-all", "--check", "echo broken; exit 4")
    assert done.code == 1
    assert re.search(r"1\. alpha: check failed after [\d.]+ s", done.err), done.err
    assert "check failed (4): echo broken; exit 4" in done.err and "broken\n" in done.err


def test_a_filter_without_a_name_is_refused_too(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "write")
    ran = cli.home / "ran"
    with (cli.cwd / ".git/config").open("a") as file:
        file.write(f'[filter ""]\n\tclean = touch {ran}; cat\n\tsmudge = touch {ran}; cat\n')
    (cli.cwd / ".gitattributes").write_text("*.txt filter=\n")
    (cli.cwd / "a.txt").write_text("changed\n")
    done = cli("delegate", "review", "look", "--isolate")
    assert done.code == 1 and asked(cli) == 0
    assert "the filter '' is defined only by the repository" in done.err
    assert cli("delegate", "review", "look", "--approve-all").code == 0
    assert not ran.exists()


def test_a_required_filter_that_fails_is_not_the_peers_fault(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "write")
    (cli.home / ".gitconfig").write_text(
        '[filter "lfs"]\n\tclean = git-lfs-not-there clean\n\tsmudge = git-lfs-not-there smudge\n'
        "\trequired = true\n"
    )
    (cli.cwd / ".gitattributes").write_text("*.txt filter=lfs\n")
    (cli.cwd / "a.txt").write_text("changed\n")
    for _ in range(4):
        done = cli("delegate", "review", "look", "--isolate")
        assert done.code == 1 and asked(cli) == 0
        assert "the filter 'lfs' of your git configuration does not work" in done.err
    (cli.home / ".gitconfig").unlink()
    done = cli("delegate", "review", "look", "--isolate")
    assert done.code == 0 and asked(cli) == 1, done.err


def test_work_that_cannot_be_taken_out_of_its_copy_is_not_done_and_stays_there(
    tmp_path: Path,
) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "write")
    (cli.home / ".gitconfig").write_text('[filter "lfs"]\n\tclean = not-there\n\trequired\n')
    (cli.cwd / ".gitattributes").write_text("done.txt filter=lfs\n")
    for number in range(1, 5):
        done = cli("delegate", "review", "look", "--isolate", "--apply")
        # It was asked each time: what failed is not its fault.
        assert done.code == 1 and asked(cli) == number, done.err
        assert "the filter 'lfs' of your git configuration does not work" in done.err
        assert "workspace has a problem" in done.err and "outside the workspace" not in done.err
    (stays,) = re.findall(r"the changes of alpha stay in (.+)", done.err)
    assert (Path(stays) / "done.txt").read_text() == "done\n"


def test_a_filter_that_a_peer_plants_in_its_copy_does_not_run(tmp_path: Path) -> None:
    cli = cli_in(tmp_path)
    prepared(cli, "plant")
    done = cli("delegate", "review", "look", "--isolate", "--apply")
    assert done.code == 0, done.err
    assert (cli.cwd / "done.txt").read_text() == "done\n"
    assert git(cli.cwd, "config", "filter.evil.clean") != ""
    assert not (cli.home / "ran").exists()

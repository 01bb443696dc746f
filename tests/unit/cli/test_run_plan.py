"""What a command line and the configuration come to together."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.cli.permission_flags import ApprovalMode
from dragoman.cli.run_plan import RunOptions, RunPlan, plan_of, prepare, workspace_of
from dragoman.client.budgets import Budgets
from dragoman.errors import ConfigInvalid, UnknownPeer, UsageError
from dragoman.policy import Policy as RulesPolicy
from dragoman.redaction.redactor import Redactor
from dragoman.rpc import trace
from dragoman.rpc.connection import TRACE_VARIABLE
from tests.unit.cli.calling import Shell


def planned(**wishes: Any) -> RunPlan:
    return plan_of(RunOptions(**{"peer": None, "command": ("my-agent",), **wishes}))


@pytest.fixture(autouse=True)
def place(shell: Shell) -> Shell:
    return shell


def configured(shell: Shell, text: str) -> None:
    shell.config.mkdir(parents=True, exist_ok=True)
    (shell.config / "config.toml").write_text(text)


def test_a_name_an_address_and_a_command_line_are_three_ways(place: Shell) -> None:
    assert planned(peer="scout", command=None).name == "scout"
    assert planned(peer="unix:/x.sock", command=None).way.address == "unix:/x.sock"
    assert planned(command=("my-agent", "--acp")).way.command == ("my-agent", "--acp")


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UnknownPeer) as caught:
        planned(peer="scuot", command=None)
    assert caught.value.nearest[0] == "scout"


def test_a_peer_of_a_project_that_is_not_trusted_is_an_error_that_says_so(place: Shell) -> None:
    (place.cwd / "dragoman.toml").write_text(
        '[peers.tool]\ntitle = "Tool"\n[[peers.tool.launch]]\ncommand = ["tool"]\n'
    )
    with pytest.raises(UnknownPeer, match="is not trusted.*`dragoman config trust`"):
        planned(peer="tool", command=None)


def test_a_role_is_a_part_of_the_plan() -> None:
    assert planned(role="review").role == "review"
    assert planned().role == ""


@pytest.mark.parametrize("wishes", [{"command": ()}, {"command": None}])
def test_nothing_to_start_is_an_error(wishes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        planned(**wishes)


def test_the_workspace_is_this_folder_or_another_one_that_exists(place: Shell) -> None:
    assert planned().workspace == place.cwd
    (place.cwd / "sub").mkdir()
    assert planned(cwd=Path("sub")).workspace == place.cwd / "sub"
    with pytest.raises(UsageError, match="not a directory"):
        planned(cwd=Path("nowhere"))


def test_a_word_that_is_not_a_peer_belongs_to_a_prompt_if_there_is_one(place: Shell) -> None:
    """Without a prompt it is a mistake: a login for another peer would get the password."""
    configured(place, 'default_peer = "scout"\n')
    wanted: dict[str, Any] = {"peer": "explain", "command": None}
    plan = planned(**wanted, takes_prompt=True)
    assert (plan.name, plan.is_named) == ("scout", False)
    with pytest.raises(UnknownPeer, match="there is no peer 'explain'"):
        planned(**wanted)


def test_a_timeout_is_the_only_limit_of_a_turn_and_bounds_what_comes_before() -> None:
    usual = Budgets()
    assert planned().budgets == usual
    short = planned(timeout=5.0).budgets
    assert (short.initialize, short.session, short.total) == (5.0, 5.0, 5.0)
    long = planned(timeout=1000.0).budgets
    assert (long.initialize, long.session) == (usual.initialize, usual.session)
    assert (long.first_event, long.silence, long.total) == (None, None, 1000.0)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="--timeout"):
            planned(timeout=wrong)


def test_a_name_that_no_list_can_show_is_refused() -> None:
    for wrong in ("", " ", "a\nb", "x" * 201):
        with pytest.raises(UsageError, match="--session"):
            planned(session=wrong)
    assert planned(session="x" * 200).session == "x" * 200


def test_options_go_before_the_configuration_of_a_peer(place: Shell) -> None:
    configured(
        place,
        'permissions = "deny-all"\nformat = "quiet"\nmax_line_size = 1000000\n'
        '[peer.scout]\nmodel = "m1"\nmode = "plan"\nenv = ["MINE"]\npermissions = "approve-all"\n'
        "[timeouts]\nsilence = 7\n",
    )
    plain = planned(peer="scout", command=None)
    assert (plain.model, plain.mode, plain.format) == ("m1", "plan", "quiet")
    assert plain.policy is ApprovalMode.APPROVE_ALL
    assert plain.budgets.silence == 7.0
    assert plain.max_line_size == 1000000
    assert "MINE" in [*plain.env, *plain.way.inherit]
    told = planned(
        peer="scout", command=None, model="m2", mode="code", format="json", approve_reads=True
    )
    assert (told.model, told.mode, told.format) == ("m2", "code", "json")
    assert told.policy is ApprovalMode.APPROVE_READS
    assert planned().policy is ApprovalMode.DENY_ALL


def test_a_broken_configuration_is_an_error_and_not_a_default(place: Shell) -> None:
    configured(place, 'permissions = "deny-al"\n')
    with pytest.raises(ConfigInvalid):
        planned()


def test_strict_json_is_json_whatever_the_configuration_says(place: Shell) -> None:
    configured(place, 'format = "quiet"\n')
    assert planned(json_strict=True).format == "json"


def test_variables_are_named_and_never_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "THERE", "1")
    plan = planned(env=["THERE", "NOT_THERE"])
    assert [*plan.env] == ["THERE", "NOT_THERE"]
    assert [*plan.notices] == ["--env NOT_THERE: the variable is not set"]
    with pytest.raises(UsageError, match="set KEY in the environment and use --env KEY") as caught:
        planned(env=["KEY=hush"])
    assert "hush" not in str(caught.value)


def test_what_a_project_wants_without_trust_is_reported_and_not_done(place: Shell) -> None:
    (place.cwd / "dragoman.toml").write_text('permissions = "approve-all"\n')
    plan = planned()
    assert plan.policy is ApprovalMode.APPROVE_READS
    (notice,) = plan.notices
    assert "permissions" in notice and "config trust" in notice


def test_servers_come_from_their_file(place: Shell) -> None:
    (place.cwd / "mcp.json").write_text('{"mcpServers": {"clock": {"command": "true"}}}')
    (server,) = planned(mcp_config=Path("mcp.json")).mcp_servers
    assert server.name == "clock"


@pytest.mark.parametrize("name", ["", "A B", "1x", "A-B"])
def test_what_is_not_a_name_of_a_variable_is_refused(shell: Shell, name: str) -> None:
    with pytest.raises(UsageError, match="--env"):
        plan_of(RunOptions(peer="scout", command=None, env=[name]))


def test_a_name_with_a_star_is_not_said_to_be_unset(shell: Shell) -> None:
    plan = plan_of(RunOptions(peer="scout", command=None, env=["NOBODY_HAS_*"]))
    assert not [notice for notice in plan.notices if "--env" in notice]


def test_the_rules_of_the_settings_are_part_of_the_plan(place: Shell) -> None:
    assert planned(approve_reads=True).whole_policy == RulesPolicy(preset="approve-reads")
    configured(place, '[[policy.rules]]\naction = "allow"\nkind = "edit"\npaths = ["src/**"]\n')
    plan = planned(approve_reads=True)
    assert plan.rules is not None and plan.rules.rules[0].paths == ("src/**",)
    assert plan.whole_policy.rules == plan.rules.rules


def test_delegated_work_may_do_no_more_than_its_delegator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = planned(approve_all=True)
    assert (free.ceilings, free.lineage) == ((), {})
    monkeypatch.setenv("DRAGOMAN_DEPTH", "1")
    lost = planned(approve_all=True)
    assert lost.ceilings == (RulesPolicy(preset="deny-all"),)
    monkeypatch.setenv("DRAGOMAN_CEILING", '{"preset":"approve-reads"}')
    plan = planned(approve_all=True)
    assert plan.ceilings == (RulesPolicy(preset="approve-reads"),)
    assert plan.lineage["DRAGOMAN_DEPTH"] == "1"
    told = msgspec.json.decode(plan.lineage["DRAGOMAN_CEILING"], type=RulesPolicy)
    assert told == plan.whole_policy


def test_a_workspace_is_a_directory_with_a_printable_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = os.fsdecode(b"h\xff")
    monkeypatch.chdir(tmp_path)
    assert workspace_of(None) == workspace_of(Path()) == tmp_path
    for name in ("none", "x" * 5000):
        with pytest.raises(UsageError, match="not a directory") as refused:
            workspace_of(Path(name))
        assert len(str(refused.value)) < 400
    try:
        Path(bad).mkdir()
    except OSError:
        pytest.skip("this file system takes only names of UTF-8 text")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        workspace_of(Path(bad))


def test_a_directory_that_may_not_be_entered_is_refused_before_an_agent_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As root every directory may be entered.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK)
    with pytest.raises(UsageError, match="--cwd: permission denied: "):
        workspace_of(tmp_path)


# -- setting a command up by it


@pytest.fixture(autouse=True)
def log_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    log = logging.getLogger("dragoman")
    before = (log.handlers[:], log.level, log.propagate)
    monkeypatch.setenv(TRACE_VARIABLE, "")
    yield
    log.handlers[:], log.level, log.propagate = before
    trace.redact_with(Redactor())


def wishes(**given: Any) -> RunOptions:
    return RunOptions(**{"peer": "scout", "command": None, **given})


def test_a_plan_comes_with_the_show_that_was_asked_for() -> None:
    plan, show = prepare(wishes(format="quiet"), None)
    assert plan.name == "scout" and isinstance(show, Quiet)
    _, show = prepare(wishes(json_strict=True), None)
    assert isinstance(show, JsonLines) and show.strict


def test_an_error_in_the_plan_is_reported_in_the_format_that_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        prepare(wishes(peer="scuot", json_strict=True), None)
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == "unknown_peer" and err == ""


def test_formats_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(UsageError, match="--format text"):
        prepare(wishes(format="text", json_strict=True), None)


def test_a_trace_goes_to_the_file_whatever_folder_the_agent_works_in(tmp_path: Path) -> None:
    prepare(wishes(), Path("wire.log"))
    assert os.environ[TRACE_VARIABLE] == str(Path.cwd() / "wire.log")


def test_values_of_credentials_are_in_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "open sesame")
    prepare(wishes(), tmp_path / "wire.log")
    written = trace.from_environment()
    assert written is not None
    written.record("c", "send", b'{"text":"say open sesame"}')
    written.close()
    assert b"sesame" not in (tmp_path / "wire.log").read_bytes()


def test_notices_of_the_plan_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    prepare(wishes(env=["NOT_SET_AT_ALL"]), None)
    assert "NOT_SET_AT_ALL" in capsys.readouterr().err


def test_verbose_tells_the_log_and_strict_silences_it(capsys: pytest.CaptureFixture[str]) -> None:
    prepare(wishes(verbose=True), None)
    logging.getLogger("dragoman.test").debug("said in verbose")
    assert "said in verbose" in capsys.readouterr().err
    logging.getLogger("dragoman").handlers.clear()
    prepare(wishes(json_strict=True), None)
    logging.getLogger("dragoman.test").error("never said")
    assert capsys.readouterr().err == ""

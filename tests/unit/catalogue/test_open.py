"""What is known of a peer, applied to its client and to its results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue import Credentials, Descriptor, Launch, Quirks
from dragoman.catalogue.discovery_store import DiscoveryStore
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.load import Catalogue, built_in
from dragoman.catalogue.open import dialect_of, found_before, judge, open_peer, options_of
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import Denial, approve_all, approve_reads
from dragoman.client.results import Result
from dragoman.errors import AuthRequired, UsageError
from dragoman.events.words import ErrorKind, Outcome
from dragoman.testing.scripted import Expect, Reply, Step, command
from tests.aio import aio

MODES = {
    "currentModeId": "auto",
    "availableModes": [{"id": "auto", "name": "Auto"}, {"id": "default", "name": "Default"}],
}
HELLO = Reply(
    {
        "protocolVersion": 1,
        "agentInfo": {"name": "qwen-code", "version": "1"},
        "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"resume": {}}},
    }
)


def way(*steps: Step, quirks: Quirks | None = None, login: str = "") -> LaunchSpec:
    quirks = quirks or Quirks()
    peer = Descriptor(
        name="tool",
        title="Tool",
        launch=(Launch(command=("tool",)),),
        credentials=Credentials(login=login),
        protocol="acp",
    )
    return LaunchSpec(
        command=tuple(command(Expect("initialize"), HELLO, *steps)),
        protocol="acp",
        descriptor=peer,
        quirks=quirks,
    )


SAFE = Quirks(mode_after_open="default")


@pytest.mark.parametrize("how", ["new", "load", "resume"])
@aio
async def test_the_mode_that_asks_is_set_however_a_session_is_opened(
    tmp_path: Path, how: str
) -> None:
    # The script dies of anything else than what it expects, in this order.
    opened = Reply({"sessionId": "s", "modes": MODES} if how == "new" else {"modes": MODES})
    steps: list[Step] = [Expect(f"session/{how}"), opened, Expect("session/set_mode"), Reply({})]
    async with open_peer(way(*steps, quirks=SAFE), workspace=tmp_path) as peer:
        wanted: dict[str, Any] = {} if how == "new" else {how: "s"}
        async with peer.session(**wanted) as session:
            assert session.id == "s"


@pytest.mark.parametrize(
    ("modes", "chosen", "steps"),
    [
        (MODES, "auto", [Expect("session/set_mode"), Reply({})]),
        ({**MODES, "currentModeId": "default"}, None, []),
        ({"currentModeId": "auto", "availableModes": [{"id": "auto", "name": "A"}]}, None, []),
        (None, None, []),
    ],
)
@aio
async def test_a_mode_that_the_user_chose_or_the_peer_lacks_is_not_overruled(
    tmp_path: Path, modes: dict[str, object] | None, chosen: str | None, steps: list[Step]
) -> None:
    opened = Reply({"sessionId": "s"} | ({"modes": modes} if modes else {}))
    prompted: list[Step] = [Expect("session/prompt"), Reply({"stopReason": "end_turn"})]
    tool = way(Expect("session/new"), opened, *steps, *prompted, quirks=SAFE)
    async with (
        open_peer(tool, workspace=tmp_path) as peer,
        peer.session(mode=chosen) as session,
    ):
        result = await session.ask("hello")
    assert result.outcome is Outcome.EMPTY
    if chosen is not None:
        assert session.modes.current_mode_id == "auto"  # type: ignore[attr-defined]


READER = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def read():
    return json.loads(sys.stdin.readline())

say(id=read()["id"], result={"protocolVersion": 1})
say(id=read()["id"], result={"sessionId": "s"})
prompt = read()
path = sys.argv[1]
say(id=7, method="fs/read_text_file", params={"sessionId": "s", "path": path})
answer = read()
text = "content " + answer["result"]["content"] if "result" in answer else "error"
update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
say(method="session/update", params={"sessionId": "s", "update": update})
say(id=prompt["id"], result={"stopReason": "end_turn"})
sys.stdin.read()
"""
"""An agent that reads a file before it answers, and tells what it got."""


@pytest.mark.parametrize(
    ("quirks", "text"), [(Quirks(missing_file_is_empty=True), "content "), (Quirks(), "error")]
)
@aio
async def test_a_missing_file_is_answered_with_nothing_where_the_peer_needs_that(
    tmp_path: Path, quirks: Quirks, text: str
) -> None:
    argv = (sys.executable, "-c", READER, str(tmp_path / "none.txt"))
    tool = LaunchSpec(command=argv, protocol="acp", quirks=quirks)
    async with open_peer(tool, workspace=tmp_path) as peer, peer.session() as session:
        result = await session.ask("hello")
    assert result.text == text


@aio
async def test_a_missing_login_is_reported_with_the_descriptors_advice(tmp_path: Path) -> None:
    refusal = Reply(error={"code": -32000, "message": "Authentication required"})
    tool = way(Expect("session/new"), refusal, login="run `tool login`")
    async with open_peer(tool, workspace=tmp_path) as peer:
        with pytest.raises(AuthRequired, match="log in first: run `tool login`"):
            async with peer.session():
                pass


@aio
async def test_variables_reach_the_peer_by_name_and_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import json, os, sys; id = json.loads(sys.stdin.readline())['id']; "
        "name = ','.join(str(os.environ.get(n)) for n in ('A_KEY', 'B_KEY', 'C_KEY', 'D'))\n"
        "result = {'protocolVersion': 1, 'agentInfo': {'name': name, 'version': '1'}}\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': result}), flush=True)\n"
        "sys.stdin.read()"
    )
    for name in ("A_KEY", "B_KEY", "C_KEY"):
        monkeypatch.setenv(name, name.lower())
    tool = LaunchSpec(command=(sys.executable, "-c", code), inherit=("A_KEY",), env={"D": "d"})
    async with open_peer(tool, ConnectOptions(inherit=["B_KEY"]), workspace=tmp_path) as peer:
        assert peer.info.name == "a_key,b_key,None,d"


# -- options


def test_quirks_are_options_of_an_acp_client_and_of_no_other() -> None:
    tool = way(quirks=Quirks(mode_after_open="default", missing_file_is_empty=True), login="do x")
    assert options_of(tool, "acp") == {
        "missing_file_is_empty": True,
        "starting_mode": "default",
        "login_hint": "do x",
    }
    assert options_of(tool, "codex") == {}
    assert options_of(LaunchSpec(command=("x",)), "auto") == {}


def test_details_belong_to_the_dialect_of_the_descriptor() -> None:
    tool = LaunchSpec(command=("x",), protocol="codex", details={"sandbox": "read-only"})
    assert options_of(tool, "codex") == {"sandbox": "read-only"}
    assert options_of(tool, "keyed") == {}


def test_the_dialect_of_the_options_goes_before_that_of_the_descriptor() -> None:
    tool = LaunchSpec(command=("x",), protocol="codex")
    assert dialect_of(tool, ConnectOptions()) == "codex"
    assert dialect_of(tool, ConnectOptions(dialect="ASP")) == "threads"
    with pytest.raises(UsageError, match="did you mean 'keyed'"):
        dialect_of(tool, ConnectOptions(dialect="kyed"))


def test_what_was_found_out_is_kept_where_there_is_something_to_find_out(tmp_path: Path) -> None:
    assert found_before("acp", tmp_path) is None
    assert found_before("auto", "") is None
    assert isinstance(found_before("auto", tmp_path), DiscoveryStore)
    assert isinstance(found_before("chained", str(tmp_path)), DiscoveryStore)


def test_codex_writes_in_the_workspace_where_everything_is_approved() -> None:
    assert options_of(LaunchSpec(command=("x",)), "codex", approve_all) == {
        "sandbox": "workspace-write"
    }
    assert options_of(LaunchSpec(command=("x",)), "codex", approve_reads) == {}
    narrow = LaunchSpec(command=("x",), protocol="codex", details={"sandbox": "read-only"})
    assert options_of(narrow, "codex", approve_all) == {"sandbox": "read-only"}


# -- results


@pytest.fixture(scope="module")
def copilot() -> Quirks:
    return Catalogue(built_in()).get("copilot").quirks


RETRY = "Info: Request failed due to a transient API error. Retrying..."


@pytest.mark.parametrize(
    ("text", "outcome", "kind"),
    [
        ("Error: 400 fake http error", Outcome.FAILED, ErrorKind.PEER),
        (f"{RETRY}{RETRY}\nError: Failed to get response", Outcome.FAILED, ErrorKind.PEER),
        ("Error: Authentication failed (HTTP 401).\n  Check", Outcome.AUTH_REQUIRED, None),
        ("Error: 429 too many", None, ErrorKind.RATE_LIMITED),
    ],
)
def test_an_error_that_is_only_in_the_text_is_not_a_success(
    copilot: Quirks, text: str, outcome: Outcome | None, kind: ErrorKind | None
) -> None:
    result = judge(Result(Outcome.OK, text), copilot)
    assert not result.ok
    assert outcome is None or result.outcome is outcome
    assert result.failure is not None and result.failure.message.startswith("Error: ")
    assert kind is None or result.failure.kind is kind
    assert result.text == text


@pytest.mark.parametrize(
    "text", ["All done.", "The Error: 400 was fixed", f"{RETRY}It worked after all", ""]
)
def test_an_answer_that_speaks_of_errors_stays_a_success(copilot: Quirks, text: str) -> None:
    result = Result(Outcome.OK, text)
    assert judge(result, copilot) is result


def test_what_failed_already_and_peers_that_behave_are_left_alone(copilot: Quirks) -> None:
    failed = Result(Outcome.CANCELLED, "Error: x")
    assert judge(failed, copilot) is failed
    fine = Result(Outcome.OK, "Error: x")
    assert judge(fine, Quirks()) is fine


def test_a_turn_that_ended_with_a_remark_about_its_refusal_was_denied(copilot: Quirks) -> None:
    denied = (Denial("call", "touch made.txt", "execute"),)
    remark = "Info: Operation cancelled by user"
    ended = judge(Result(Outcome.OK, remark, denials=denied), copilot)
    assert (ended.outcome, ended.text) == (Outcome.DENIED, remark)
    went_on = Result(Outcome.OK, f"{remark}Then I did it differently.", denials=denied)
    assert judge(went_on, copilot) is went_on

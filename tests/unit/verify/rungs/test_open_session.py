from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.descriptor import Credentials, Descriptor, Launch, Models, Quirks
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Conversation, Peer
from dragoman.client.results import Result
from dragoman.errors import AuthRequired, CallTimeout, DragomanError
from dragoman.events.parts import AuthMethod
from dragoman.events.words import Outcome
from dragoman.verify import probes, remedies
from dragoman.verify.rungs import open_session
from dragoman.verify.verification import TurnObservation
from tests.aio import aio
from tests.unit.verify.fakes import FakeClimb, climbing, told, verdict

DESCRIPTOR = Descriptor(
    name="x",
    title="X",
    launch=(Launch(command=("x",)),),
    credentials=Credentials(login="run `x login`"),
)


class _Opening(FakeClimb):
    refuses: DragomanError | None = None
    methods: tuple[AuthMethod, ...] = ()

    async def peer(self) -> Peer:
        peer = await super().peer()
        peer.auth_methods = self.methods
        return peer

    async def conversation(self) -> Conversation:
        if self.refuses is not None:
            raise self.refuses
        return await super().conversation()


def opening(tmp_path: Path, refuses: DragomanError | None = None, **fields: Any) -> _Opening:
    climb = climbing(tmp_path, **fields)
    climb.__class__ = _Opening
    assert isinstance(climb, _Opening)
    climb.refuses = refuses
    if refuses is not None:
        climb.session_id = None
    return climb


@aio
async def test_a_session_that_opens_needs_no_login(tmp_path: Path) -> None:
    climb = opening(tmp_path)
    assert verdict(await open_session.login(climb)) == (RungVerdict.PASS, {"authenticated": True})
    assert verdict(await open_session.session(climb)) == (RungVerdict.PASS, {"sessions": True})


@aio
async def test_a_refusal_for_want_of_a_login_says_how_to_log_in(tmp_path: Path) -> None:
    climb = opening(tmp_path, AuthRequired(hint="run `x auth`"))
    finding = await open_session.login(climb)
    assert verdict(finding) == (RungVerdict.FAIL, {"authenticated": False, "login": "run `x auth`"})
    assert finding.remedy.startswith(remedies.LOGIN)
    assert "run `x auth`" in finding.remedy
    assert (await open_session.session(climb)).verdict is RungVerdict.SKIPPED


@aio
async def test_without_a_hint_the_descriptor_or_the_peers_methods_tell_how(tmp_path: Path) -> None:
    way = LaunchSpec(command=("x",), descriptor=DESCRIPTOR)
    known = await open_session.login(opening(tmp_path, AuthRequired(), way=way))
    assert known.facts["login"] == "run `x login`"
    climb = opening(tmp_path, AuthRequired())
    climb.methods = (AuthMethod("a", "Browser"), AuthMethod("b", "Shell", command="x login"))
    assert (await open_session.login(climb)).facts["login"] == "Browser or x login"


@aio
async def test_a_program_without_credentials_is_not_blamed_for_wanting_some(tmp_path: Path) -> None:
    finding = await open_session.login(opening(tmp_path, AuthRequired(), careful=True))
    assert finding.verdict is RungVerdict.WARN
    assert finding.remedy.startswith(remedies.LOGIN_CAREFUL)


@aio
async def test_a_session_that_does_not_open_says_nothing_about_the_login(tmp_path: Path) -> None:
    climb = opening(tmp_path, CallTimeout("session/new", 60))
    assert verdict(await open_session.login(climb)) == (RungVerdict.SKIPPED, {})
    finding = await open_session.session(climb)
    assert verdict(finding) == (RungVerdict.FAIL, {"sessions": False})
    assert "session/new" in finding.evidence


@aio
async def test_a_login_that_shows_only_in_a_prompt_is_unknown(tmp_path: Path) -> None:
    quirks = Quirks(login_shown_in="prompt")
    way = LaunchSpec(command=("x",), descriptor=DESCRIPTOR, quirks=quirks)
    assert (await open_session.login(opening(tmp_path, way=way))).facts == {}
    unknown = opening(tmp_path)
    unknown.methods = (AuthMethod("a", "Browser"),)
    assert (await open_session.login(unknown)).facts == {}


@pytest.mark.parametrize("missing", [True, False])
@aio
async def test_a_peer_that_can_be_asked_for_its_login_is_asked(
    tmp_path: Path, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def needs_login(peer: Peer) -> bool:
        return missing

    monkeypatch.setattr(probes, "needs_login", needs_login)
    way = LaunchSpec(command=("x",), descriptor=DESCRIPTOR, quirks=Quirks(login_shown_in="account"))
    finding = await open_session.login(opening(tmp_path, way=way))
    assert finding.facts["authenticated"] is not missing


def models(monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...] | None) -> None:
    async def models_of(*args: object) -> tuple[str, ...] | None:
        return named

    monkeypatch.setattr(probes, "models_of", models_of)


@aio
async def test_parents_are_recorded_with_and_without_the_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models(monkeypatch, ("m-5-preview", "m-5", "m-preview-4"))
    finding = await open_session.models(climbing(tmp_path))
    assert finding.verdict is RungVerdict.WARN
    assert finding.evidence.startswith("some models are previews, such as m-5-preview; 3 models: ")
    assert finding.facts["parent_models"] == ("m-5", "m-preview-4")


@aio
async def test_models_that_are_not_told_are_unknown_and_an_empty_list_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models(monkeypatch, None)
    assert (await open_session.models(climbing(tmp_path))).facts == {}
    models(monkeypatch, ())
    assert (await open_session.models(climbing(tmp_path))).facts["models"] == ()


@pytest.mark.parametrize(
    ("program", "facts"),
    [
        (
            "print('m-1  the first\\n\\nm-2-preview')",
            {"models": ("m-1", "m-2-preview"), "parent_models": ("m-1", "m-2")},
        ),
        ("raise SystemExit(1)", {}),
    ],
)
@aio
async def test_a_peer_that_lists_its_models_by_a_command_is_asked_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, facts: dict[str, Any]
) -> None:
    models(monkeypatch, None)
    command = (sys.executable, "-I", "-c", program)
    listing = Descriptor(
        name="x",
        title="X",
        launch=(Launch(command=("x",)),),
        models=Models(listing="command", command=command),
    )
    climb = climbing(tmp_path, way=LaunchSpec(command=("x",), descriptor=listing))
    assert (await open_session.models(climb)).facts == facts


@aio
async def test_two_sessions_that_answer_at_once_are_parallel(tmp_path: Path) -> None:
    prompts: list[str] = []

    def act(prompt: str, climb: FakeClimb) -> TurnObservation:
        prompts.append(prompt)
        return told()

    climb = climbing(tmp_path)
    climb.act = act
    assert (await open_session.parallel(climb)).facts == {"parallel_sessions": True}
    assert len(set(prompts)) == 2


@aio
async def test_without_turns_two_open_sessions_are_enough_and_nothing_is_prompted(
    tmp_path: Path,
) -> None:
    climb = climbing(tmp_path, turns=False)
    climb.act = lambda prompt, climb: pytest.fail("a prompt was sent")
    assert (await open_session.parallel(climb)).facts == {"parallel_sessions": True}


@aio
async def test_a_dialect_with_one_request_at_a_time_is_not_parallel(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.client.connection.settings.half_duplex = True
    climb.act = lambda prompt, climb: pytest.fail("a prompt was sent")
    assert (await open_session.parallel(climb)).facts == {"parallel_sessions": False}


@aio
async def test_a_dialect_without_sessions_is_not_parallel(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.implicit = True
    climb.act = lambda prompt, climb: pytest.fail("a prompt was sent")
    finding = await open_session.parallel(climb)
    assert finding.facts == {"parallel_sessions": False}
    assert "one conversation" in finding.evidence


@aio
async def test_a_second_prompt_that_cancels_the_first_is_not_parallel(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    ends = iter([told(), told(Result(Outcome.CANCELLED, "", "cancelled"))])
    climb.act = lambda prompt, climb: next(ends)
    finding = await open_session.parallel(climb)
    assert finding.facts == {"parallel_sessions": False}
    assert "cancelled" in finding.evidence

"""Services are tried only where they are offered; `test_probe` tries each with its fault."""

from __future__ import annotations

import pytest

from dragoman.testing.conformance.checks import Skip
from dragoman.testing.conformance.conversation import Conversation, refuse
from dragoman.testing.conformance.probe_services import LIMIT, PRINTED, Services, offers
from dragoman.transports.memory import memory_pair
from tests.aio import aio

EVERYTHING = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
}


def test_an_offer_is_true_or_an_object() -> None:
    assert offers(EVERYTHING, "terminal") and offers(EVERYTHING, "elicitation.url")
    assert not offers({"terminal": "yes"}, "terminal")
    assert not offers({"elicitation": {"form": None}}, "elicitation.form")
    assert not offers({}, "fs.readTextFile")


def test_the_limit_of_output_cuts_into_a_character() -> None:
    with pytest.raises(UnicodeDecodeError):
        PRINTED.encode()[-LIMIT:].decode()


@aio
async def test_what_is_not_offered_is_skipped_and_what_is_all_offered_cannot_be_refused() -> None:
    near, _ = memory_pair()
    conversation = Conversation(near, timeout=20.0, respond=lambda request: refuse())
    bare = Services(conversation, "s", "/somewhere", {})
    for service in (bare.files, bare.wrong_paths, bare.terminal, bare.truncated, bare.killed,
                    bare.form, bare.unknown_way):  # fmt: skip
        with pytest.raises(Skip, match="does not offer"):
            await service()
    with pytest.raises(Skip, match="offers everything"):
        await Services(conversation, "s", "/somewhere", EVERYTHING).refused()

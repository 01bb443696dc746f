"""The messages of `--host`: omitted fields have their defaults, and unknown fields are ignored."""

from __future__ import annotations

import msgspec

from dragoman.broker import host_protocol as protocol


def test_a_prompt_is_encoded_without_defaults() -> None:
    prompt = protocol.HostPrompt(job="j-1", peer="codex", words=["fix it"], is_asked=True)
    data = msgspec.json.encode(prompt)
    assert msgspec.json.decode(data) == {
        "job": "j-1",
        "peer": "codex",
        "words": ["fix it"],
        "isAsked": True,
    }
    assert msgspec.json.decode(data, type=protocol.HostPrompt) == prompt


def test_a_greeting_from_a_newer_version_is_accepted() -> None:
    told = {"protocol": 1, "version": "9.9", "somethingNew": True}
    greeting = msgspec.json.decode(msgspec.json.encode(told), type=protocol.Greeting)
    assert (greeting.protocol, greeting.version) == (1, "9.9")


def test_the_remote_side_tolerates_several_missing_pings() -> None:
    assert protocol.SILENCE_TIMEOUT > 3 * protocol.PING_INTERVAL

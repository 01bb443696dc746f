"""What is spoken on a broker's socket beyond the protocol of agents."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker import protocol
from dragoman.broker.protocol import (
    Attach,
    Attached,
    PromptMeta,
    SessionMeta,
    Submit,
    decode_as,
)
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import InvalidAnswer, RemoteError
from dragoman.policy import Policy, Rule


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def plain(value: Raw) -> Any:
    return msgspec.json.decode(value)


def test_params_that_are_none_are_refused_as_invalid() -> None:
    for params in (Raw(b"[]"), Raw(b'{"sessionId":5}'), Raw(b"\xff"), Raw(b"")):
        with pytest.raises(RemoteError) as refused:
            protocol.read(params, Attach)
        assert refused.value.code == -32602
    assert protocol.read(raw({"sessionId": "a"}), Attach).start is None


def test_what_is_for_us_is_read_and_taken_out() -> None:
    body = protocol.members(raw({"a": 1, "_meta": {"x": 2, "dragoman": {"job": "j-1"}}}))
    assert protocol.our_meta(body, PromptMeta).job == "j-1"
    assert plain(protocol.pack(protocol.without_our_meta(body))) == {"a": 1, "_meta": {"x": 2}}


def test_a_peer_receives_its_depth_and_none_of_our_other_fields() -> None:
    ours = {"job": "j-1", "depth": 2, "lineage": ["j-0"], "policy": "deny-all"}
    body = protocol.members(raw({"a": 1, "_meta": {"dragoman": ours}}))
    sent = plain(protocol.pack(protocol.without_our_meta(body)))
    assert sent == {"a": 1, "_meta": {"dragoman": {"depth": 2, "lineage": ["j-0"]}}}


def test_the_gateway_in_front_of_a_peer_also_reads_model_and_metadata() -> None:
    told = {"model": "x", "metadata": {"branch": "main"}}
    body = protocol.members(raw({"_meta": {"dragoman": {"key": "s-1", **told}}}))
    assert plain(protocol.pack(protocol.without_our_meta(body))) == {}
    sent = protocol.without_our_meta(body, but=protocol.FOR_GATEWAY)
    assert plain(protocol.pack(sent)) == {"_meta": {"dragoman": told}}


@pytest.mark.parametrize("meta", [None, {}, {"dragoman": {}}])
def test_without_our_words_the_defaults_count(meta: Any) -> None:
    body = protocol.members(raw({"a": 1, "_meta": meta}))
    assert protocol.our_meta(body, PromptMeta) == PromptMeta()
    assert protocol.our_meta({}, SessionMeta) == SessionMeta()
    assert plain(protocol.pack(protocol.without_our_meta(body)))["a"] == 1


def test_our_words_stand_beside_those_of_the_peer() -> None:
    result = raw({"stopReason": "end_turn", "_meta": {"theirs": 1}})
    added = protocol.Added(job="j", next_event=3)
    ours = {"job": "j", "nextEvent": 3}
    assert plain(protocol.with_added(result, added)) == {
        "stopReason": "end_turn",
        "_meta": {"theirs": 1, "dragoman": ours},
    }
    assert plain(protocol.with_added(raw(None), added)) == {"_meta": {"dragoman": ours}}
    assert plain(protocol.with_added(raw([1]), added)) == [1]


def test_what_a_broker_has_added_is_read_from_the_answer() -> None:
    added = protocol.Added(key="s-1", context="fresh", next=7)
    result = protocol.with_added(raw({"sessionId": "1"}), added)
    meta = acp.SESSION_NEW.decode_result(result).meta
    assert protocol.added_to(meta) == added
    for other in (None, {}, {"theirs": 1}, {"dragoman": 7}, {"dragoman": {"next": "x"}}):
        assert protocol.added_to(other) == protocol.Added()


def test_a_text_is_a_text_or_nothing() -> None:
    assert protocol.text(raw("a")) == "a"
    assert [protocol.text(each) for each in (None, raw(5), Raw(b"{"))] == [None, None, None]


def test_a_policy_is_a_name_or_a_whole_one() -> None:
    policy = Policy(preset="ask", rules=(Rule(action="deny", paths=(".env",)),))
    for told, meant in (("deny-all", "deny-all"), (policy, policy), (None, None)):
        body = protocol.members(raw({"_meta": {"dragoman": {"policy": told}}}))
        assert protocol.our_meta(body, PromptMeta).policy == meant
        submitted: dict[str, Any] = {"sessionId": "s", "prompt": [], "job": "j", "policy": told}
        assert protocol.read(raw(submitted), Submit).policy == meant


def test_a_policy_that_cannot_be_meant_is_refused_before_anything_runs() -> None:
    broken = Policy(rules=(Rule(action="allow", commands=("git 'push",)),))
    for policy in ("ask", broken, Policy(ceilings=(Policy(ceilings=(broken,)),)), {"rules": 1}):
        body = protocol.members(raw({"_meta": {"dragoman": {"policy": policy}}}))
        with pytest.raises(RemoteError) as refused:
            protocol.our_meta(body, PromptMeta)
        assert refused.value.code == -32602


def test_every_name_of_a_method_is_an_extension_of_ours_and_stands_for_one_method() -> None:
    values = [value for name, value in vars(protocol).items() if name.isupper()]
    names = [value for value in values if str(value).startswith("_")]
    names.remove(protocol.PREFIX)
    assert len(names) == len(set(names)) > 10
    assert all(name.startswith(protocol.PREFIX) for name in names)


def test_a_response_that_cannot_be_read_is_an_invalid_answer_that_may_have_run() -> None:
    assert decode_as(Raw(b'{"next": 3}'), Attached, "response to x") == Attached(next=3)
    for body in (b'{"next": "3"}', b"\xff", b"[" * 100_000):
        with pytest.raises(InvalidAnswer, match="invalid response to x") as refused:
            decode_as(Raw(body), Attached, "response to x")
        assert refused.value.may_have_run

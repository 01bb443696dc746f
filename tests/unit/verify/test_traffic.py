from __future__ import annotations

import pytest

from dragoman.events import model
from dragoman.events.parts import Capabilities, PeerInfo
from dragoman.events.words import Outcome
from dragoman.verify import traffic as module
from dragoman.verify.traffic import EventBuffer, TrafficCounts, has_turn_id, shown

SOURCE = model.Source("acp", "c")


def unknown(line: bytes, native: str = "") -> model.Unknown:
    return model.Unknown(SOURCE, 1, None, None, native, line, False, "")


def test_lines_that_are_not_messages_are_counted_and_the_first_is_kept() -> None:
    witness = TrafficCounts()
    witness.hear(unknown(b"Welcome!"))
    witness.hear(unknown(b"[1, 2]"))
    assert witness.noise_lines == 2
    assert witness.noise_sample == "'Welcome!'"
    assert witness.stray_answers == 0


def test_answers_to_nothing_are_counted_and_are_not_noise() -> None:
    witness = TrafficCounts()
    witness.hear(unknown(b'{"jsonrpc":"2.0","id":99,"result":{}}'))
    witness.hear(unknown(b'{"id":98,"error":{"code":-1,"message":"x"}}'))
    assert witness.stray_answers == 2
    assert witness.noise_lines == 0


def test_an_unknown_notification_is_neither() -> None:
    witness = TrafficCounts()
    witness.hear(unknown(b'{"method":"qwen/notify","params":{}}', "qwen/notify"))
    assert (witness.noise_lines, witness.stray_answers) == (0, 0)


def test_a_notification_is_kept_with_the_keys_of_its_params() -> None:
    witness = TrafficCounts()
    witness.hear(unknown(b'{"method":"text/delta","params":{"delta":"x"}}', "text/delta"))
    witness.hear(
        unknown(b'{"method":"text/delta","params":{"turnId":"t","delta":"y"}}', "text/delta")
    )
    update = (
        b'{"method":"session/update","params":{"sessionId":"s","update":{"type":"a","chunk":"b"}}}'
    )
    witness.hear(unknown(update, "session/update:messageChunk"))
    witness.hear(unknown(b'{"method":"ping"}', "ping"))
    witness.hear(unknown(b'{"id":1,"method":"fs/read","params":{"path":"p"}}', "fs/read"))
    witness.hear(unknown(b"no message"))
    assert witness.notifications == {
        "text/delta": ["delta", "turnId"],
        "session/update:messageChunk": ["sessionId", "update.type", "update.chunk"],
        "ping": [],
    }


def test_a_peer_that_makes_up_names_without_end_fills_nothing() -> None:
    witness = TrafficCounts()
    for number in range(500):
        name = f"n{number}" + "x" * 10_000
        keys = ",".join(f'"k{key}":1' for key in range(200))
        witness.hear(unknown(f'{{"method":"{name}","params":{{{keys}}}}}'.encode(), name))
    assert len(witness.notifications) == 100
    assert len(witness._samples) == 100
    assert all(len(name) <= 200 for name in witness.notifications)
    assert all(len(keys) == 50 for keys in witness.notifications.values())


def test_several_events_of_one_line_count_once() -> None:
    witness = TrafficCounts()
    line = b"no message"
    witness.hear(unknown(line))
    witness.hear(unknown(line))
    assert witness.noise_lines == 1


def test_the_form_of_its_own_ids_is_seen_in_its_requests() -> None:
    witness = TrafficCounts()
    asked = b'{"id":"a-1","method":"session/request_permission","params":{}}'
    witness.hear(model.PermissionAsked(SOURCE, 1, "s", None, "x", asked, False, "q", ()))
    assert witness.id_formats == {"string"}
    called = b'{"id":0,"method":"fs/read_text_file","params":{}}'
    witness.hear(model.ServiceCalled(SOURCE, 2, "s", None, "x", called, False, "fs", "read"))
    assert witness.id_formats == {"integer", "string"}
    assert witness.services["fs"] == 1


def test_a_request_is_seen_also_if_another_event_came_of_its_line_first() -> None:
    witness = TrafficCounts()
    asked = b'{"id":0,"method":"session/request_permission","params":{}}'
    witness.hear(model.ToolChanged(SOURCE, 1, "s", None, "x", asked, False, "tool"))
    witness.hear(model.PermissionAsked(SOURCE, 2, "s", None, "x", asked, False, "q", ()))
    assert witness.id_formats == {"integer"}


def test_the_agreed_version_and_the_greeting_are_kept() -> None:
    witness = TrafficCounts()
    line = b'{"id":0,"result":{"protocolVersion":1}}'
    witness.hear(
        model.ConnectionReady(
            SOURCE, 1, None, None, "initialize", line, False, PeerInfo(), Capabilities(), "1"
        )
    )
    assert witness.protocol_version == "1"
    assert witness.greeting == line


def test_a_listener_hears_only_what_comes_while_it_listens() -> None:
    witness = TrafficCounts()
    witness.hear(unknown(b"before"))
    with witness.listening() as heard:
        witness.hear(unknown(b"while"))
    witness.hear(unknown(b"after"))
    assert [event.raw for event in heard] == [b"while"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"params":{"turnId":"t"}}',
        b'{"params":{"update":{"_meta":{"turnId":"t"}}}}',
        b'{"params":{"_meta":{"vendor":{"promptId":7}}}}',
        b'{"params":{"turnId":"t","text":"half an emoji: \\ud83d"}}',
    ],
)
def test_the_id_of_a_turn_is_found_where_agents_put_it(line: bytes) -> None:
    assert has_turn_id(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"params":{"update":{"content":{"text":"turnId"}}}}',
        b'{"params":{"turnId":null}}',
        b'{"params":[]}',
        b"[]",
        b"{",
        b"\xff",
    ],
)
def test_what_is_not_an_id_of_a_turn_is_not_taken_for_one(line: bytes) -> None:
    assert not has_turn_id(line)


def test_a_long_line_is_shown_short() -> None:
    assert len(shown(b"x" * 10_000)) < 150


def test_a_flood_is_counted_and_kept_up_to_a_bound_with_the_end_of_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_HEARD", 3)
    monkeypatch.setattr(module, "MAX_HEARD_SIZE", 100)
    heard = EventBuffer()
    for _ in range(10):
        heard.take(unknown(b"x"))
    assert (len(heard), heard.total) == (3, 10)
    heard.take(model.TurnEnded(SOURCE, 1, "s", "t", "", None, False, Outcome.OK))
    assert isinstance(heard[-1], model.TurnEnded)
    long = EventBuffer()
    for _ in range(10):
        long.take(unknown(b"x" * 60))
    assert (len(long), long.total) == (1, 10)

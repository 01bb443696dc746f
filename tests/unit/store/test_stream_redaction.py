"""A secret in pieces is found, and every line comes out once, in order."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.redaction.redactor import REACH, Redactor
from dragoman.store.stream_redaction import MAX_LINES, WINDOW, LineRedactor
from tests.unit.store.stores import SECRET, chunk, update


def texts(lines: list[bytes]) -> list[str]:
    return [msgspec.json.decode(line)["update"]["content"]["text"] for line in lines]


def through(lines: list[bytes], redact: Redactor | None = None) -> list[bytes]:
    runs = LineRedactor(redact or Redactor())
    out = [line for given in lines for line in runs.feed(given)]
    return out + runs.flush()


def test_a_secret_is_replaced_where_it_begins_and_cut_from_what_follows() -> None:
    pieces = ["it is ", "so " + SECRET[:5], SECRET[5:9], SECRET[9:] + " now", "."]
    assert texts(through([chunk(piece) for piece in pieces])) == [
        "it is ",
        "so [redacted]",
        "",
        " now",
        ".",
    ]


def test_lines_without_a_secret_come_out_as_they_were() -> None:
    lines = [chunk(f"word {number} and\nmore") for number in range(3000)]
    out = through(lines)
    assert out == lines


def test_the_end_of_an_open_run_is_held_back_and_no_more() -> None:
    runs = LineRedactor(Redactor())
    out: list[bytes] = []
    for _ in range(WINDOW):
        out += runs.feed(chunk("a b "))
    held = 4 * (WINDOW - len(out))
    assert REACH <= held < WINDOW + 2 * REACH
    assert len(runs.flush()) == WINDOW - len(out)
    assert runs.flush() == []


@pytest.mark.parametrize(
    "text",
    ["word and word ", "a line of code;\n", 'say "yes" ', "tab\tand \\ ", "one token = 5;\n", "x"],
)
@pytest.mark.parametrize("together", [1, 3, 100, 1000])
def test_no_more_of_a_growing_text_is_held_back_than_the_reach(text: str, together: int) -> None:
    runs = LineRedactor(Redactor())
    lines = [chunk(text)] * 1000
    done = 0
    for at in range(0, len(lines), together):
        done += len(runs.feed_all(lines[at : at + together]))
        assert (min(at + together, len(lines)) - done - 1) * len(text) < REACH
    assert done + len(runs.flush()) == len(lines)


def test_what_stays_for_a_secret_is_the_secret_and_the_reach_before_it() -> None:
    runs = LineRedactor(Redactor())
    done = len(runs.feed_all([chunk("a b ")] * 500))
    done += len(runs.feed_all([chunk(SECRET)]))
    assert (500 - done) * 4 <= REACH + 4
    for count in range(REACH // 4):
        done += len(runs.feed_all([chunk("\na b")]))
        assert (500 - done) * 4 <= REACH + 4, count
    done += len(runs.feed_all([chunk("\na b")] * 2))
    assert done > 500


@pytest.mark.parametrize(
    "inside", [b'a","b', b"a\\", b'a\\",\\"b', b"\\ud83d", b"\\ude00", b"\xff", b'"', b"\\x"]
)
def test_texts_that_end_early_or_not_at_all_are_examined_as_one_by_one(inside: bytes) -> None:
    before, _, behind = chunk("?").partition(b"?")
    lines = [chunk("a\n"), *[before + text + behind for text in (inside, b"\\n", inside, b"c")]]
    together = LineRedactor(Redactor())
    assert together.feed_all(lines[:1]) == []
    assert together.feed_all(lines[1:]) + together.flush() == through(lines)


@pytest.mark.parametrize("kind", ["tool_call", "tool_call_update"])
def test_a_tool_call_ends_a_run(kind: str) -> None:
    runs = LineRedactor(Redactor())
    assert runs.feed(chunk("hello")) == []
    tool = update(kind, toolCallId="t", title="x")
    assert runs.feed(tool) == [chunk("hello"), tool]


def test_a_thought_ends_the_run_of_an_answer() -> None:
    runs = LineRedactor(Redactor())
    runs.feed(chunk("hello"))
    assert runs.feed(chunk("hm", "agent_thought_chunk")) == [chunk("hello")]
    assert runs.flush() == [chunk("hm", "agent_thought_chunk")]


def test_other_updates_between_two_pieces_wait_for_their_turn() -> None:
    usage = update("usage_update", used=1, size=2)
    lines = [chunk(SECRET[:8]), usage, chunk(SECRET[8:])]
    out = through(lines)
    assert out[1] == usage
    assert texts([out[0], out[2]]) == ["[redacted]", ""]
    assert LineRedactor(Redactor()).feed(usage) == [usage]


def test_a_secret_beside_the_text_is_found() -> None:
    def line(text: str) -> bytes:
        content = {"type": "text", "text": text, "_meta": {"x": SECRET}}
        return update("agent_message_chunk", content=content)

    out = through([line("a"), line("b"), line(f"c {SECRET[:9]}"), line(SECRET[9:])])
    assert SECRET.encode() not in b"".join(out)
    assert texts(out) == ["a", "b", "c [redacted]", ""]


def test_another_text_before_the_text_is_not_taken_for_it() -> None:
    def line(text: str) -> bytes:
        return msgspec.json.encode(
            {
                "sessionId": "one",
                "_meta": {"text": "same"},
                "update": {
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": text},
                },
            }
        )

    out = through([line("same"), line(" " + SECRET[:9]), line(SECRET[9:])])
    assert texts(out) == ["same", " [redacted]", ""]


def test_a_chunk_that_is_not_text_is_passed_on_in_order() -> None:
    image = update("agent_message_chunk", content={"type": "image", "data": "AAAA"})
    lines = [chunk("a"), image, chunk("b")]
    assert through(lines) == lines


def test_spaces_and_escapes_that_others_write_make_no_difference() -> None:
    def line(text: str) -> bytes:
        return (
            b'{"sessionId": "one", "update": {"content": {"type": "text", "text": "%b"}, '
            b'"sessionUpdate": "agent_message_chunk"}}'
        ) % text.encode()

    escaped = "".join(f"\\u{ord(letter):04x}" for letter in SECRET[9:])
    out = through([line("a "), line(SECRET[:9]), line(escaped), line(" \\u00e9\\ud83d")])
    assert SECRET[9:] not in "".join(texts(out[:3]))
    assert texts(out[:3]) == ["a ", "[redacted]", ""]
    assert len(out) == 4


@pytest.mark.parametrize("line", [b"no json", b"{}", b'{"update":5}', b"\xff", b""])
def test_lines_that_are_not_updates_are_passed_on(line: bytes) -> None:
    runs = LineRedactor(Redactor())
    assert len(runs.feed(line)) == 1


def test_lines_that_say_nothing_do_not_pile_up() -> None:
    runs = LineRedactor(Redactor())
    out = len(runs.feed(chunk("a")))
    for _ in range(MAX_LINES * 2):
        out += len(runs.feed(chunk("")))
    assert out >= MAX_LINES


def test_a_value_longer_than_the_usual_reach_is_found_in_single_letters() -> None:
    value = "".join(chr(97 + number * 7 % 26) for number in range(2000))
    text = "x " * 1500 + value + " y" * 1500
    out = through([chunk(letter) for letter in text], Redactor([value]))
    assert "".join(texts(out)) == "x " * 1500 + "[redacted]" + " y" * 1500


def test_a_key_whose_escapes_are_longer_than_the_reach_is_found_in_pieces() -> None:
    key = "v1.0-" + "0a1b2c3d4e5f6071" * 12
    for written in (
        "".join(f"\\u{ord(letter):04x}" for letter in key),
        "".join(f"%25{ord(letter):02X}" for letter in key),
        "".join(f"\x1b[32m{letter}\x1b[0m" for letter in key),
    ):
        text = "x " * 1500 + written + " y" * 3000
        for size in (1, 100):
            lines = [chunk(text[at : at + size]) for at in range(0, len(text), size)]
            out = "".join(texts(through(lines)))
            assert written[-40:-20] not in out
            assert out.startswith("x " * 1500) and out.endswith(" y" * 3000)
            together = LineRedactor(Redactor())
            assert "".join(texts(together.feed_all(lines) + together.flush())) == out


def output(text: str, tool: str = "t") -> bytes:
    data = {"terminal_output": {"terminal_id": tool, "data": text}}
    return update("tool_call_update", toolCallId=tool, _meta=data)


def test_a_secret_in_pieces_of_the_output_of_a_tool_is_found() -> None:
    call, plan = update("tool_call", toolCallId="t", title="x"), update("plan", entries=[])
    pieces = [output(letter) for letter in f"it is {SECRET} here"]
    lines = [chunk("so"), call, *pieces[:20], plan, *pieces[20:], chunk("done"), chunk(" now")]
    out = through(lines)
    assert out[:2] == lines[:2] and out[-2:] == lines[-2:]
    assert out[2 + 20] == plan
    told = [msgspec.json.decode(line)["update"].get("_meta") for line in out]
    assert "".join(each["terminal_output"]["data"] for each in told if each) == (
        "it is [redacted] here"
    )


def test_the_output_of_a_tool_without_a_secret_comes_out_as_it_was() -> None:
    lines = [line for text in ("a b", "c", "\n") for line in (output(text), chunk(text))]
    assert through(lines) == lines
    together = LineRedactor(Redactor())
    assert together.feed_all(lines * 50) + together.flush() == lines * 50


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_what_follows_the_output_of_a_tool_that_is_over_is_not_held_back(status: str) -> None:
    runs = LineRedactor(Redactor())
    for tool in ("a", "b"):
        call = update("tool_call", toolCallId=tool, title="x", rawInput={"content": "one"})
        begun = update("tool_call_update", toolCallId=tool, rawOutput={"stdout": "no"})
        over = update("tool_call_update", toolCallId=tool, status=status, rawOutput="no end")
        assert runs.feed_all([call]) == [call]
        assert runs.feed_all([begun]) == []
        assert runs.feed_all([over]) == [begun, over]


def test_the_output_of_another_tool_is_held_back_until_that_is_over() -> None:
    pieces = [output(SECRET[:9]), output("other", "u"), output(SECRET[9:]), output(".", "u")]
    over = [update("tool_call_update", toolCallId=tool, status="completed") for tool in "ut"]
    runs = LineRedactor(Redactor())
    assert runs.feed_all([*pieces[:2], over[0]]) == []
    assert runs.feed_all(pieces[2:]) == []
    out = runs.feed_all(over[1:]) + runs.flush()
    told = [msgspec.json.decode(line)["update"].get("_meta") for line in out]
    assert [each["terminal_output"]["data"] for each in told if each] == [
        "[redacted]",
        "other",
        "",
        ".",
    ]


def test_of_the_output_of_a_tool_little_more_is_held_back_than_the_reach() -> None:
    runs = LineRedactor(Redactor())
    text, done = "one token = 5;\n", 0
    for count in range(1, 300):
        done += len(runs.feed_all([output(text)]))
        assert (count - done - 1) * len(text) < REACH * 5 / 4
    assert done + len(runs.flush()) == count

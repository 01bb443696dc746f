"""No secret reaches the disk, however it is split, escaped or hidden in a line."""

from __future__ import annotations

import json
import re
import string
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.config.secrets import SHORTEST_HANDED, handed_values
from dragoman.redaction import names, shapes
from dragoman.redaction.messages import MessageRedactor
from dragoman.redaction.names import REDACTED
from dragoman.redaction.redactor import LONG, REACH
from dragoman.store import (
    JobRecord,
    LineRedactor,
    Redactor,
    SessionRecord,
    Store,
    new_job_id,
    new_session_key,
)
from dragoman.store.stream_redaction import MAX_SIZE, WINDOW
from tests.keys import KEYS as KINDS

VALUES = ("correct-horse-battery", 'with "quotes" and \\ in it', "schlüssel/wörter/geheim")
KEYS = (
    "sk-" + "a1B2" * 6,
    "ghp_" + "x9Y8" * 6,
    "xoxb-" + "1234-abcd-" * 2,
    "AKIA" + "ABCD1234" * 2,
    "eyJhbGciOiJIUzI1NiJ9.eyJ" + "c3ViIjoiMTIzNDU2Nzg5MCJ9" * 40 + ".dozjgNryP4J3jVmNHl0w5N",
)
SECRETS = VALUES + KEYS

words = st.sampled_from(
    [
        "task-",
        "the key",
        " token ",
        "\n",
        "é",
        "🦊",
        ' "',
        "\\",
        " ",
        "x" * 700,
        "://",
        "@",
        "a b c",
    ]
)
prose = st.lists(words, max_size=12).map("".join)
secrets = st.sampled_from(SECRETS)


def chunk(text: str, kind: str = "agent_message_chunk") -> bytes:
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return msgspec.json.encode({"sessionId": "one", "update": update})


def text_of(lines: list[bytes]) -> str:
    return "".join(msgspec.json.decode(line)["update"]["content"]["text"] for line in lines)


def streamed(redact: Redactor, lines: list[bytes]) -> list[bytes]:
    """Return the result of the lines one by one, which must equal the result of many at once."""
    runs = LineRedactor(redact)
    out = [line for given in lines for line in runs.feed(given)]
    out += runs.flush()
    for size in (1, 7, 300):
        runs = LineRedactor(redact)
        batches = [lines[at : at + size] for at in range(0, len(lines), size)]
        together = [line for batch in batches for line in runs.feed_all(batch)]
        together += runs.flush()
        assert len(together) == len(out)
        assert text_of(together) == text_of(out)
    return out


@st.composite
def pieces(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A secret somewhere in a text that is cut anywhere."""
    secret = draw(secrets)
    text = draw(prose) + " " + secret + " " + draw(prose)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=30)))
    edges = [0, *cuts, len(text)]
    return secret, [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@settings(max_examples=400)
@given(pieces())
def test_a_secret_cut_anywhere_is_found_and_every_line_stays(
    case: tuple[str, list[str]],
) -> None:
    secret, parts = case
    redact = Redactor(VALUES)
    out = streamed(redact, [chunk(part) for part in parts])
    assert len(out) == len(parts)
    assert secret not in text_of(out)
    # The result is what the whole text would have become.
    assert text_of(out) == redact.text("".join(parts))


NEIGHBOURS = st.sampled_from(
    ["", "x", "K", "9", "_", " ", "=", "\\n", "%3D", "\x1b[32m", "\\u001b[1;31m", "é", '"', "://"]
)


def plain(key: str) -> str:
    return key


def coloured(key: str) -> str:
    half = len(key) // 2
    return f"\x1b[32m{key[:half]}\x1b[0;1m{key[half:]}\x1b[0m"


def in_json(key: str) -> str:
    return json.dumps({"stdout": f"a\n{key}\nb"})


def in_an_address(key: str) -> str:
    return "https://example.org/?q%3D" + "".join(f"%{ord(letter):02X}" for letter in key)


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in key)


def escaped_thrice(key: str) -> str:
    return "".join(f"\\\\\\\\u{ord(letter):04x}" for letter in key)


def coloured_letters(key: str) -> str:
    return "".join(f"\x1b[38;5;208m{letter}\x1b[0m" for letter in key)


ENCODINGS = [
    plain,
    coloured,
    in_json,
    in_an_address,
    escaped,
    escaped_thrice,
    coloured_letters,
]


@settings(max_examples=300)
@given(
    st.sampled_from((*KINDS, *KEYS)),
    NEIGHBOURS,
    NEIGHBOURS,
    st.sampled_from(ENCODINGS),
    st.lists(st.integers(0, 2000), max_size=8),
)
@example(next(key for key in KINDS if key.startswith("v1.0-")), "", "", escaped, [600, 900])
@example(KEYS[-1], "", "", plain, [200, 900])
def test_every_kind_of_key_is_found_between_any_neighbours_in_every_encoding_and_cut(
    key: str, before: str, behind: str, encode: Callable[[str], str], cuts: list[int]
) -> None:
    written = encode(key)
    text = f"so {before}{written}{behind} it is"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    stored = text_of(streamed(Redactor(), [chunk(part) for part in parts]))
    trace: MessageRedactor[None] = MessageRedactor(Redactor())
    traced = [entry for part in parts for entry in trace.feed(chunk(part), None)]
    traced += trace.flush()
    record = "".join(message["update"]["content"]["text"] for _, message in traced)
    for clean in (stored, record):
        # No part of it, neither as it is nor as it was written: the beginning of a key shows only
        # its kind.
        for form in (key[12:], encode(key)[-40:-20] if encode is not plain else key[12:]):
            assert form not in clean
        assert clean.startswith("so ") and clean.endswith(" it is")


@settings(max_examples=200)
@given(
    st.sampled_from((*KINDS, *KEYS)),
    st.sampled_from(ENCODINGS),
    st.integers(LONG - 4000, LONG + 1000),
    st.sampled_from(["w", "w "]),
)
@example(KEYS[-1], plain, LONG - 400, "w ")
def test_a_key_is_found_at_every_place_of_a_long_text(
    key: str, encode: Callable[[str], str], place: int, filler: str
) -> None:
    written = encode(key)
    before = (filler * place)[:place]
    clean = Redactor().text(f"{before} {written} {filler * 500}")
    assert key[12:] not in clean
    assert (written[-40:-20] if encode is not plain else key[12:]) not in clean
    assert clean.startswith(before) and clean.endswith(filler * 500)


HANDED = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=6, max_size=40
)


@settings(max_examples=25)
@given(HANDED, prose, prose, st.lists(st.integers(0, 300), max_size=12))
@example("eight888", "", "", [3])
@example("/no/such/place", "", "", [])
def test_what_a_user_hands_over_is_found_under_any_name_and_however_it_is_cut(
    value: str, before: str, behind: str, cuts: list[int]
) -> None:
    found = handed_values({"COLOUR": value, "SIZE": "another value"}, ["COLOUR"], "/nowhere")
    if len(value.strip()) < SHORTEST_HANDED or set(value) <= set("./"):
        # It is too short, or consists of dots and slashes only.
        return
    assert found == (value,)
    if value in REDACTED:
        return
    text = f"{before} {value} {behind}"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    out = streamed(Redactor(found), [chunk(part) for part in parts])
    assert len(out) == len(parts)
    assert value not in text_of(out)
    line = msgspec.json.encode({"sessionId": "one", "update": {"x": [value, {value: text}]}})
    for written in (line, json.dumps(msgspec.json.decode(line)).encode()):
        told = leaves(msgspec.json.decode(Redactor(found).line(written)))
        assert not any(value in each for each in told)


@settings(max_examples=60)
@given(
    secrets,
    st.integers(0, WINDOW + 2 * REACH),
    st.integers(1, 40),
    st.sampled_from(["w ", "ab", "päß "]),
)
def test_a_secret_in_a_long_stream_is_found_at_every_place(
    secret: str, place: int, step: int, filler: str
) -> None:
    before = (filler * (place // len(filler) + 1))[:place] + " "
    text = before + secret + " " + filler * 400
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    out = streamed(Redactor(VALUES), [chunk(part) for part in parts])
    assert len(out) == len(parts)
    assert secret not in text_of(out)
    assert text_of(out) == Redactor(VALUES).text(text)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_named_secret_is_found_when_its_end_is_far_from_its_name(step: int) -> None:
    value = "tiger lily " * 300
    text = "a " * 3000 + f"PASSWORD='{value}' and so on. " + "b " * 3000
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    out = streamed(Redactor(), [chunk(part) for part in parts])
    assert len(out) == len(parts)
    assert "tiger" not in text_of(out)
    assert text_of(out).endswith("and so on. " + "b " * 3000)


def test_what_is_held_back_is_bounded_though_a_word_never_ends() -> None:
    runs = LineRedactor(Redactor())
    out = 0
    for _ in range(40):
        out += len(runs.feed(chunk("eyJabcdefgh" + "z" * 8000)))
    assert out * 8000 > 40 * 8000 - MAX_SIZE - 3 * WINDOW - 8000 * 2


strings = st.one_of(secrets, prose, st.builds("{} {} {}".format, prose, secrets, prose))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), strings),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(strings, inner, max_size=4),
    ),
    max_leaves=12,
)


def leaves(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in leaves(item)]
    if isinstance(value, list):
        return [text for item in value for text in leaves(item)]
    return []


@settings(max_examples=200)
@given(values, st.booleans(), st.booleans())
def test_no_secret_stays_in_a_line_of_json_however_it_is_written(
    value: object, ascii_only: bool, nested: bool
) -> None:
    held: object = {"rawOutput": json.dumps(value)} if nested else value
    params = {"sessionId": "one", "update": {"sessionUpdate": "tool_call", "x": held}}
    line = json.dumps(params, ensure_ascii=ascii_only).encode()
    clean = Redactor(VALUES).line(line)
    decoded = msgspec.json.decode(clean)
    if nested:
        inner = decoded["update"]["x"]["rawOutput"]
        everything = [inner]
    else:
        everything = leaves(decoded)
    for secret in SECRETS:
        assert not any(secret in text for text in everything)
        if nested:
            assert json.dumps(secret)[1:-1] not in everything[0]


def test_every_letter_may_be_escaped() -> None:
    for secret in SECRETS:
        written = "".join(f"\\u{ord(letter):04x}" for letter in secret)
        line = b'{"sessionId":"one","update":{"x":"' + written.encode() + b'"}}'
        assert secret not in msgspec.json.decode(Redactor(VALUES).line(line))["update"]["x"]


# -- the quick look never misses what the long one finds

PRINTABLE = st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs"))
LOOKS = [
    shapes.compiled(pattern)
    for pattern in dict.fromkeys((*(shape.pattern for shape in shapes.SHAPES), *names._TEXTS))
]


@pytest.mark.parametrize("pattern", LOOKS, ids=lambda pattern: pattern.pattern[:40])
@settings(max_examples=40)
@given(data=st.data())
def test_the_quick_look_sees_whatever_the_long_one_would_cut(
    pattern: re.Pattern[str], data: st.DataObject
) -> None:
    # The generator does not support possessive repetition, which does not change what matches.
    plain = re.compile(pattern.pattern.replace("}+", "}"), pattern.flags)
    text = data.draw(st.from_regex(plain, alphabet=PRINTABLE))
    redact = Redactor()
    if redact._clean(text) != text:
        assert redact.suspects(text)
        line = json.dumps({"sessionId": "one", "text": "\n" + text}, ensure_ascii=False).encode()
        assert redact.line(line) != line


# -- and nothing of it is on the disk


def session() -> SessionRecord:
    return SessionRecord(
        key=new_session_key(),
        peer="codex",
        root="/somewhere",
        peer_session_id="one",
        cwd="/somewhere",
        created_at=1.0,
        updated_at=1.0,
    )


@settings(max_examples=15)
@given(st.lists(pieces(), min_size=1, max_size=3), secrets)
def test_no_byte_of_a_secret_is_in_any_file_of_the_folder(
    cases: list[tuple[str, list[str]]], secret: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        redact = Redactor(VALUES)
        with Store.open(folder / "sessions.db", redact) as store:
            one = session()
            store.create_session(one)
            store.update_session(one.key, title=f"about {secret} here")
            job = JobRecord(
                id=new_job_id(),
                session_key=one.key,
                peer="codex",
                root="/somewhere",
                prompt="x" * 70_000 + f" use {secret} please",
                created_at=1.0,
            )
            store.create_job(job)
            number = 0
            for _, parts in cases:
                lines = streamed(redact, [chunk(part, "user_message_chunk") for part in parts])
                store.append(one.key, number, lines, job.id)
                number += len(lines)
            store.note(one.key, 0, "permission", {"title": f"run {secret}", "list": [secret]})
            failure = {"message": f"401: bad key {secret}", "data": {"x": [secret]}}
            store.update_job(job.id, state="ended", text=f"it is {secret}!", failure=failure)
            planted = {secret, *(found for found, _ in cases)}
            # While the store is open, its log and index exist, too.
            assert len(list(folder.iterdir())) == 3
            for file in folder.iterdir():
                data = file.read_bytes()
                for word in planted:
                    for form in (word, json.dumps(word)[1:-1]):
                        assert form.encode() not in data, file.name


@settings(max_examples=100)
@given(st.text(alphabet=string.printable, max_size=300))
@example("password: *** token=[redacted]")
def test_what_was_redacted_is_not_redacted_again(text: str) -> None:
    redact = Redactor(VALUES)
    once = redact.text(text + " " + KEYS[0])
    assert redact.text(once) == once

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest

from dragoman.scout import ripgrep
from dragoman.scout.hits import Hit, Query


def message(kind: str, **data: Any) -> bytes:
    return json.dumps({"type": kind, "data": data}, separators=(",", ":")).encode() + b"\n"


def found(path: Any, line: Any, number: int = 3, start: int = 0) -> bytes:
    return message(
        "match", path=path, lines=line, line_number=number, submatches=[{"start": start, "end": 9}]
    )


def read(*pieces: bytes, query: Query | None = None, limit: int = 100) -> tuple[list[Hit], Any]:
    hits: list[Hit] = []

    def sink(hit: Hit) -> bool:
        hits.append(hit)
        return len(hits) < limit

    output = ripgrep.Output(sink, query or Query(("foo",)))
    for piece in pieces:
        if not output.feed(piece):
            break
    return hits, output


def test_matches_become_hits_however_the_output_is_cut() -> None:
    data = (
        message("begin", path={"text": "./a.py"})
        + found({"text": "./a.py"}, {"text": "x = foo\n"}, start=4)
        + message("summary", stats={"searches": 12}, elapsed_total={})
    )
    for size in (1, 7, len(data)):
        hits, output = read(*(data[at : at + size] for at in range(0, len(data), size)))
        assert hits == [Hit("a.py", 3, "x = foo")]
        assert output.searched == 12


def test_names_and_lines_that_are_no_text_are_read() -> None:
    name = base64.b64encode(b"./b\xff\n.py").decode()
    line = base64.b64encode(b"foo \xff\n").decode()
    hits, _ = read(found({"bytes": name}, {"bytes": line}))
    assert hits == [Hit(os.fsdecode(b"b\xff\n.py"), 3, "foo \ufffd")]


def test_what_is_only_a_part_of_a_word_is_left_out() -> None:
    hits, _ = read(found({"text": "./a"}, {"text": "food\n"}))
    assert hits == []


def test_what_is_no_message_is_passed_over() -> None:
    hits, output = read(
        b"warning: x\n",
        b'{"type":"match","data":3}\n',
        b"\xff\n",
        found({"text": "./a"}, {"text": "foo\n"}),
    )
    assert len(hits) == 1
    assert output.searched is None


def test_a_line_of_megabytes_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ripgrep, "MAX_MESSAGE_SIZE", 1000)
    long = found({"text": "./long"}, {"text": "foo" + "x" * 5000 + "\n"})
    pieces = [long[at : at + 500] for at in range(0, len(long), 500)]
    hits, _ = read(*pieces, found({"text": "./a"}, {"text": "foo\n"}))
    assert [hit.path for hit in hits] == ["a"]


def test_nothing_is_read_when_enough_was_found() -> None:
    hits, _ = read(*[found({"text": "./a"}, {"text": "foo\n"})] * 5, limit=2)
    assert len(hits) == 2


def test_terms_and_folders_cannot_be_taken_for_options() -> None:
    argv = ripgrep.command(Query(("--pre=sh", "x"), words=False, under="--files"))
    assert argv[-2:] == ["--", "./--files"]
    assert argv[argv.index("--pre=sh") - 1] == "--regexp"
    assert "--word-regexp" not in argv
    assert "--fixed-strings" in argv
    assert "--no-ignore-parent" not in argv


def test_above_the_workspace_no_ignore_file_counts() -> None:
    assert "--no-ignore-parent" in ripgrep.command(Query(("x",)))

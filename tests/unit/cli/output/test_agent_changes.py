"""Changes of files as a few readable lines."""

from __future__ import annotations

from dragoman.cli.output.agent_changes import COMPARED_SIZE, lines_of
from dragoman.events.parts import FileChange
from dragoman.events.words import FileOp


def test_two_texts_become_a_diff() -> None:
    change = FileChange("a.py", FileOp.MODIFY, "one\ntwo\n", "one\n2\n")
    assert lines_of(change) == ["a.py (changed)", "@@ -1,2 +1,2 @@", " one", "-two", "+2"]


def test_a_new_file_is_all_plus_and_a_deleted_one_is_only_named() -> None:
    new = FileChange("a.py", FileOp.ADD, None, "one\n")
    assert lines_of(new) == ["a.py (new file)", "@@ -0,0 +1 @@", "+one"]
    assert lines_of(FileChange("a.py", FileOp.DELETE)) == ["a.py (deleted)"]


def test_the_agents_own_diff_is_shown_without_its_headings() -> None:
    change = FileChange("b", FileOp.MOVE, diff="--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", old_path="a")
    assert lines_of(change) == ["b (moved from a)", "@@ -1 +1 @@", "-x", "+y"]


def test_a_long_diff_is_cut_and_says_so_unless_all_is_wanted() -> None:
    change = FileChange("a", FileOp.ADD, None, "x\n" * 100)
    cut = lines_of(change, limit=10)
    assert len(cut) == 12
    assert cut[-1] == "… 91 more lines (--verbose shows all)"
    assert len(lines_of(change, limit=None)) == 102


def test_huge_texts_are_not_compared() -> None:
    change = FileChange("a", FileOp.MODIFY, "x" * COMPARED_SIZE, "y")
    assert lines_of(change)[1:] == [f"(changed from {COMPARED_SIZE} to 1 characters)"]


def test_an_unknown_new_text_is_said_to_be_unknown() -> None:
    assert lines_of(FileChange("a", FileOp.MODIFY, "x")) == [
        "a (changed)",
        "(the new text is unknown)",
    ]


def test_control_characters_in_names_and_texts_have_no_power() -> None:
    change = FileChange("a\n\x1b[2J", FileOp.ADD, None, "\x1b]0;x\x07\n")
    assert not any("\x1b" in line or "\n" in line for line in lines_of(change))

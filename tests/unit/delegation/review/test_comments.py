"""Comments become one prompt."""

from __future__ import annotations

from dragoman.delegation.review import comments as module
from dragoman.delegation.review.changes import ReviewChange, ReviewFile
from dragoman.delegation.review.comments import ReviewComment, review_prompt
from dragoman.events.words import FileOp

COMMENTS = [
    ReviewComment(path="src/a.py", line=12, quote="x = 1", text="Name it.\nAnd test it."),
    ReviewComment(path="src/a.py", line=3, side="old", quote="y", text="Why is it gone?"),
    ReviewComment(path="b.py", side="old", quote="z", text="This too?"),
    ReviewComment(path="b.py", text="Too long."),
    ReviewComment(text="Add a changelog line."),
]


def test_every_comment_is_there_with_its_place_and_its_line() -> None:
    assert review_prompt(COMMENTS, own=True) == (
        "Review of your changes: 5 comments. Address each of them, and say in one line each what "
        "you did.\n\n"
        "1. src/a.py, line 12:\n   > x = 1\n   Name it.\n   And test it.\n\n"
        "2. src/a.py, line 3 before the change:\n   > y\n   Why is it gone?\n\n"
        "3. b.py (a removed line):\n   > z\n   This too?\n\n"
        "4. b.py:\n   Too long.\n\n"
        "5. In general:\n   Add a changelog line."
    )


def test_another_agent_reads_whose_changes_they_are() -> None:
    said = review_prompt(COMMENTS[:1], own=False)
    assert said.startswith("Review of changes that another agent made in this project: 1 comment.")


def test_changes_that_are_not_in_the_workspace_are_repeated_for_commented_files() -> None:
    def file(path: str, diff: str) -> ReviewFile:
        return ReviewFile(path=path, op=FileOp.MODIFY, changes=(ReviewChange(diff=diff),))

    files = [
        file("src/a.py", "@@ -1 +1 @@\n-y\n+x = 1"),
        file("other.py", "@@ -1 +1 @@\n-o\n+p"),
        file("b.py", "+" * (module.MAX_PATCH + 1)),
    ]
    said = review_prompt(COMMENTS[:4], own=True, unapplied=files)
    assert "not in the workspace" in said and "+++ b/src/a.py\n@@ -1 +1 @@" in said
    assert "other.py" not in said and "++++" not in said
    # A general comment is about all files.
    assert "other.py" in review_prompt(COMMENTS[4:], own=True, unapplied=files)

"""The roots of the tree: what every error says of itself.

The whole tree is drawn in `dragoman.errors`, from where everybody imports.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

Blame = Literal["us", "peer", "world"]


class DragomanError(Exception):
    """The root. `str(error)` is a sentence for people; the attributes are for programs."""

    error_class: ClassVar[str] = "error"
    blame: ClassVar[Blame] = "us"
    retryable: ClassVar[bool] = False
    may_have_run: bool = False

    def fresh(self) -> Self:
        """A copy to raise elsewhere, so that tracebacks of different callers do not mix."""
        # Not `copy.copy`, which calls the constructor again with `args`: here that is the finished
        # sentence, and not what the constructors of this tree take.
        twin = type(self).__new__(type(self))
        twin.args = self.args
        twin.__dict__.update(self.__dict__)
        twin.__cause__ = self.__cause__
        return twin


class UsageError(DragomanError):
    """The caller asked for something that cannot be done here; nothing was sent."""

    error_class = "usage"


def shown(text: str) -> str:
    """What a peer sent us, fit for a sentence: quoted, and cut where it is absurdly long."""
    return repr(text) if len(text) <= 200 else f"{text[:160]!r}… ({len(text)} characters)"

"""Events and reports for tests of what is shown."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

from dragoman.cli.output.renderer import TurnReport
from dragoman.client.results import Result
from dragoman.events import model
from dragoman.events.words import Outcome

Kind = TypeVar("Kind", bound=model.Base)

SOURCE = model.Source("acp", "client-1")
_numbers = itertools.count(1)


def happened(kind: type[Kind], /, *fields: Any, replay: bool = False, **named: Any) -> Kind:
    """An event of a turn."""
    base = (SOURCE, next(_numbers), "s1", "t1", "native", b"raw", replay)
    return kind(*base, *fields, **named)


def report(outcome: Outcome = Outcome.OK, text: str = "", **named: Any) -> TurnReport:
    """The end of a turn; `named` go to the result, but for those of the report itself."""
    own = {name: named.pop(name) for name in ("exit_code", "interrupted") if name in named}
    result = Result(outcome, text, **named)
    code = own.pop("exit_code", 0 if outcome.good else 1)
    return TurnReport(peer="p", session="s1", result=result, seconds=1.0, exit_code=code, **own)

"""The permission policy: what an agent may do without anybody being asked.

`rules` has the words, `judging` the decision, `acts` makes an act of an agent's question, and
`desk` answers the questions of a session in order. How a shell line is read is in `shell` and
`programs`, how a path is in `places`. Settings hold the rules (`hub.config.schema`), so every
command imports this package: what a name needs is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dragoman.hub.policy.rules import (
    PRESETS,
    Act,
    Policy,
    PolicySettings,
    Rule,
    Verdict,
    allows_everything,
    for_whom,
    narrowed,
    of_settings,
    preset,
)

if TYPE_CHECKING:
    from dragoman.hub.policy.acts import act_of
    from dragoman.hub.policy.desk import Desk, Ruling
    from dragoman.hub.policy.judging import judge

LATER: Final = {"act_of": "acts", "Desk": "desk", "Ruling": "desk", "judge": "judging"}

__all__ = [
    "PRESETS",
    "Act",
    "Desk",
    "Policy",
    "PolicySettings",
    "Rule",
    "Ruling",
    "Verdict",
    "act_of",
    "allows_everything",
    "for_whom",
    "judge",
    "narrowed",
    "of_settings",
    "preset",
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATER[name]}"), name)

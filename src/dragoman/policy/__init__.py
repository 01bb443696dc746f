"""The permission policy: what an agent may do without anybody being asked.

`rules` has the words, `policy.evaluation` the decision, `acts` makes an act of an agent's question, and
`policy.approver` answers the questions of a session in order. How a shell line is read is in `policy.shell` and
`policy.program_tables`, how a path is in `policy.path_patterns`. Settings hold the rules (`config.schema`), so every
command imports this package: what a name needs is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dragoman.policy.rules import (
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
    from dragoman.policy.acts import act_of
    from dragoman.policy.approver import Approver, Ruling
    from dragoman.policy.evaluation import judge

LATER: Final = {
    "act_of": "acts",
    "Approver": "approver",
    "Ruling": "approver",
    "judge": "evaluation",
}

__all__ = [
    "PRESETS",
    "Act",
    "Approver",
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

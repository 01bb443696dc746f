"""The permission policy: which actions of an agent are allowed or denied, and which need a
question.

`rules` has the data types, `evaluation` the decision, `act_from_request` the conversion of a
permission request into an `Act`, and `approver` answers the requests of a session. Every command
imports this package through `config.schema`, so names that need slow imports are loaded on first
use.
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
    unattended,
)

if TYPE_CHECKING:
    from dragoman.policy.act_from_request import act_of
    from dragoman.policy.approver import Approver, Ruling
    from dragoman.policy.evaluation import judge

LATER: Final = {
    "act_of": "act_from_request",
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
    "unattended",
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATER[name]}"), name)

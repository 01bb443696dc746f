"""Names of earlier releases: documented imports of `dragoman.hub` go on working, with a warning.

Each module that was documented, or that a generated adapter imports, stands here with the module
that has its contents now and the names that changed. This package goes away with the next release;
nothing in dragoman imports it.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType
from typing import Any, Final

MOVED: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "adapters": ("dragoman.adapters", {"Errand": "Assignment"}),
    "bandit": ("dragoman.delegation.bandit", {}),
    "catalogue": ("dragoman.catalogue", {}),
    "config": ("dragoman.config", {}),
    "connecting": ("dragoman.runs.connect", {}),
    "delegating": ("dragoman.delegation", {"Wish": "DelegationRequest", "Reins": "CancelHandle"}),
    "launching": ("dragoman.catalogue.launch", {"Way": "LaunchSpec"}),
    "ledger": ("dragoman.store.ledger", {}),
    "opening": ("dragoman.catalogue.open", {}),
    "place": ("dragoman.runs.context", {"Place": "RunContext", "look_around": "load_context"}),
    "policy": ("dragoman.policy", {"Desk": "Approver"}),
    "routing": ("dragoman.delegation.routing", {}),
    "sessions": ("dragoman.store", {"Recorder": "EventRecorder", "Writer": "StoreWriter"}),
    "sessions.history": ("dragoman.store.history", {}),
    "verify": ("dragoman.verify", {}),
    "verify.canaries": ("dragoman.verify.canaries", {}),
    "verify.ladder": ("dragoman.verify.ladder", {"climb": "climb"}),
    "verify.limits": ("dragoman.verify.limits", {"Limits": "LadderLimits"}),
    "verify.report": ("dragoman.verify.report", {}),
}
"""Old module: the module that has its contents now, and the names that are spelled otherwise."""


class _Moved(ModuleType):
    """A module under its old name: hands out the names of the new one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        old = self.__name__.removeprefix(f"{__name__}.")
        new, renamed = MOVED[old]
        if f"{old}.{name}" in MOVED:
            return sys.modules[f"{self.__name__}.{name}"]
        now = renamed.get(name, name)
        value = getattr(importlib.import_module(new), now)
        warnings.warn(
            f"{self.__name__}.{name} is {new}.{now} now; the old name goes away with the next "
            "release",
            DeprecationWarning,
            stacklevel=2,
        )
        return value


def _install() -> None:
    for old in MOVED:
        name = f"{__name__}.{old}"
        module = _Moved(name, f"Moved to {MOVED[old][0]}.")
        # Marks it as a package, so that the modules below it are found in sys.modules.
        module.__path__ = []
        sys.modules[name] = module


_install()


def __getattr__(name: str) -> Any:
    if name in MOVED:
        return sys.modules[f"{__name__}.{name}"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Names of earlier releases: documented imports from `dragoman.hub` still work, with a warning.

Each module that was documented, or that a generated adapter imports, is listed with its replacement
and the names that changed. This package will be removed in the next release; nothing in dragoman
imports it.
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

MOVED: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "adapters": (
        "dragoman.adapters",
        {
            "DescribedAdapter": "dragoman.runs.adapters.DescribedAdapter",
            "Errand": "Assignment",
            "load_adapter": "dragoman.runs.adapters.load_adapter",
        },
    ),
    "bandit": ("dragoman.delegation.bandit", {}),
    "catalogue": ("dragoman.catalogue", {"Known": "KnownPeer"}),
    "config": ("dragoman.config", {"Ignored": "IgnoredSetting"}),
    "connecting": ("dragoman.runs.connect", {}),
    "delegating": (
        "dragoman.delegation",
        {
            "Audience": "DelegationListener",
            "Reins": "CancelHandle",
            "Wish": "DelegationRequest",
            "delegate": "delegate_request",
        },
    ),
    "launching": ("dragoman.catalogue.launch", {"Way": "LaunchSpec"}),
    "ledger": ("dragoman.store.ledger", {"EventLog": "EventsFile"}),
    "opening": ("dragoman.catalogue.open", {}),
    "place": ("dragoman.runs.context", {"Place": "RunContext", "look_around": "load_context"}),
    "policy": ("dragoman.policy", {"Desk": "Approver"}),
    "routing": ("dragoman.delegation.routing", {}),
    "sessions": ("dragoman.store", {"Writer": "StoreWriter"}),
    "sessions.history": ("dragoman.store.history", {}),
    "verify": ("dragoman.verify", {}),
    "verify.canaries": ("dragoman.verify.canary_prompts", {}),
    "verify.ladder": ("dragoman.verify.ladder", {}),
    "verify.limits": ("dragoman.verify.time_limits", {"Limits": "LadderLimits"}),
    "verify.report": ("dragoman.verify.report", {}),
}
"""For each old module: the module that replaces it, and the new name of everything that was renamed
or, if the new name has dots, moved to another module."""

KEYWORDS: Final = {"wish": "request", "audience": "listener", "reins": "cancel"}
"""Parameters of `delegate` and `decide_for` that were renamed."""

OPTIONS: Final = {"env": "inherit", "extra_env": "env"}
"""Options of `open_peer` that have another name in `ConnectOptions`."""


class _Moved(ModuleType):
    """A module under its old name: provides the names of the new one."""

    def __getattr__(self, name: str) -> Any:
        old = self.__name__.removeprefix(f"{__name__}.")
        new, renamed = MOVED[old]
        if name == "__all__":
            return _public(new, renamed)
        if name.startswith("__"):
            raise AttributeError(name)
        if f"{old}.{name}" in MOVED:
            return sys.modules[f"{self.__name__}.{name}"]
        home, _, now = renamed.get(name, name).rpartition(".")
        value = getattr(importlib.import_module(home or new), now)
        warnings.warn(
            f"{self.__name__}.{name} is now {home or new}.{now}; the old name will be removed in "
            "the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        if name == "open_peer":
            return _with_old_options(value)
        return _with_old_keywords(value) if name in ("delegate", "decide_for") else value


def _with_old_keywords(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **{KEYWORDS.get(key, key): options[key] for key in options})

    return call


def _with_old_options(open_peer: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(open_peer)
    def call(launch: Any, *, workspace: Any = ".", **options: Any) -> Any:
        from dragoman.client.options import ConnectOptions

        if options.get("dialect", "") is None:
            del options["dialect"]
        named = {OPTIONS.get(key, key): value for key, value in options.items()}
        return open_peer(launch, ConnectOptions(**named), workspace=workspace)

    return call


def _public(new: str, renamed: dict[str, str]) -> list[str]:
    """Return the names that a star import provides, in their old spelling."""
    module = importlib.import_module(new)
    names: list[str] = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == new
    ]
    return [*(name for name in names if name not in renamed.values()), *renamed]


def _install() -> None:
    for old in MOVED:
        name = f"{__name__}.{old}"
        module = _Moved(name, f"Moved to {MOVED[old][0]}.")
        # Marks it as a package, so that the submodules are found in sys.modules.
        module.__path__ = []
        sys.modules[name] = module


_install()


def __getattr__(name: str) -> Any:
    if name in MOVED:
        return sys.modules[f"{__name__}.{name}"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

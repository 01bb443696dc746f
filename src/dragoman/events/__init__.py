"""The event model, common to all dialects. Pure: no I/O, clock, loop or logging.

`model` has the closed set of events, `parts` their components, `words` the enumerations, and `fold`
turns a stream of events into the current state of a session. The names of the first three are also
here, loaded on first use: `events.MessageDelta`, `events.Text`, `events.Outcome`. Dialects create
events; the packages above consume them. No wire method names here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.events.model import *  # noqa: F403
    from dragoman.events.parts import *  # noqa: F403
    from dragoman.events.words import *  # noqa: F403
else:

    def _names() -> dict[str, object]:
        homes = [import_module(f"{__name__}.{home}") for home in ("model", "parts", "words")]
        return {name: getattr(home, name) for home in homes for name in home.__all__}

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return sorted(_names())
        # Python also looks up a module of this package here before it imports it.
        if name[0].isupper() and name in (names := _names()):
            globals().update(names)
            return names[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_names()})

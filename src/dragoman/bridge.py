"""The earlier name of `dragoman.gateway`: ``python -m dragoman.bridge`` and imports still work.

It will be removed in the next release; nothing in dragoman imports it.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dragoman.gateway import RAW_KEY, serve
    from dragoman.gateway import Gateway as Bridge

RENAMED: Final = {"Bridge": "Gateway"}

warnings.warn(
    "dragoman.bridge is now dragoman.gateway; the old name will be removed in the next release",
    DeprecationWarning,
    # Python shows such a warning only if it points at the running program.
    stacklevel=1 if __name__ == "__main__" else 2,
)

__all__ = ["RAW_KEY", "Bridge", "serve"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        # With the `__path__` of the gateway its modules would be loaded a second time from here.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dragoman import gateway

    return getattr(gateway, RENAMED.get(name, name))


if __name__ == "__main__":
    from dragoman.gateway.__main__ import main

    sys.exit(main())

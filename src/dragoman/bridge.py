"""The earlier name of `dragoman.gateway`: ``python -m dragoman.bridge`` and imports still work.

It goes away with the next release; nothing in dragoman imports it.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Final

RENAMED: Final = {"Bridge": "Gateway"}

warnings.warn(
    "dragoman.bridge is dragoman.gateway now; the old name goes away with the next release",
    DeprecationWarning,
    stacklevel=2,
)


def __getattr__(name: str) -> Any:
    from dragoman import gateway

    return getattr(gateway, RENAMED.get(name, name))


if __name__ == "__main__":
    from dragoman.gateway.__main__ import main

    sys.exit(main())

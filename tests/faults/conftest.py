"""After every fault: no child process, descriptor or thread of ours may be left.

The check is the one of the integration tests. Tasks are checked by `tests.aio`.
"""

from __future__ import annotations

from tests.integration.conftest import nothing_is_left_behind

__all__ = ["nothing_is_left_behind"]

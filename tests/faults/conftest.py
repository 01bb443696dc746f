"""No fault test may leave a child process, descriptor or thread behind.

Uses the fixture of the integration tests. `tests.aio` checks tasks.
"""

from __future__ import annotations

from tests.integration.conftest import nothing_is_left_behind

__all__ = ["nothing_is_left_behind"]

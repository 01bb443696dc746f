"""How many examples a property test tries where the usual number would take too long."""

from __future__ import annotations

from hypothesis import settings

SOME = settings(max_examples=max(100, settings().max_examples // 5))
"""A fifth of the usual number, for examples that are large or properties that are plain."""

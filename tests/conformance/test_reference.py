"""docs/reference/conformance.md is up to date with the manifest and the checks."""

from __future__ import annotations

from tests.conformance.reference import PAGE, page


def test_the_reference_is_written_from_the_manifest() -> None:
    written = PAGE.read_text("utf-8")
    assert written == page(), "run: python -m tests.conformance.reference"

"""What errors of files and terminals say."""

from __future__ import annotations

from dragoman.errors import FileMissing, NotPermitted, PathRefused, ServiceError, TooLarge


def test_each_names_what_it_is_about() -> None:
    assert str(PathRefused("/x", "outside")) == "'/x' is refused: outside"
    assert "does not exist" in str(FileMissing("/x"))
    assert "10 bytes" in str(TooLarge("/x", 10, "12 bytes"))
    assert str(NotPermitted("rm")) == "'rm' is not permitted"


def test_they_are_the_peers_fault_unless_they_say_otherwise() -> None:
    assert ServiceError("x").blame == "peer"

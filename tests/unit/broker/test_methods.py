"""The names of the broker's own methods."""

from __future__ import annotations

from dragoman.broker import methods


def test_every_name_is_an_extension_of_ours_and_stands_for_one_method() -> None:
    names = [value for name, value in vars(methods).items() if name.isupper() and name != "PREFIX"]
    assert len(names) == len(set(names)) > 10
    assert all(name.startswith(methods.PREFIX) for name in names)

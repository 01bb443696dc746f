"""The public contract for adapters."""

from __future__ import annotations

from pathlib import Path

from dragoman import adapters
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.permissions import approve_all, deny_all


def test_an_assignment_denies_everything_unless_it_says_otherwise() -> None:
    assignment = adapters.Assignment(way=LaunchSpec(command=("agent",)), cwd=Path("/"))
    assert assignment.permit is deny_all
    assert (assignment.model, assignment.mode, assignment.env) == (None, None, ())


def test_what_an_adapter_is_written_with_is_here() -> None:
    assert set(adapters.__all__) == {
        "Adapter",
        "Assignment",
        "ConnectOptions",
        "Notified",
        "judge",
        "open_peer",
    }
    assert all(hasattr(adapters, name) for name in adapters.__all__)


def test_an_assignment_gives_its_terms_as_options() -> None:
    budgets = Budgets(total=5)
    assignment = adapters.Assignment(
        way=LaunchSpec(command=("agent",)),
        cwd=Path("/"),
        permit=approve_all,
        budgets=budgets,
        env=("KEY",),
    )
    assert assignment.options(print) == adapters.ConnectOptions(
        permit=approve_all, budgets=budgets, inherit=("KEY",), on_event=print
    )

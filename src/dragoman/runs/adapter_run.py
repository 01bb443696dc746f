"""Run one prompt through a peer's adapter: choose its role, call it, and say what went wrong.

A failure of the adapter's own code is an `AdapterFailed`; what the adapter raises about its peer is
passed on as it is. `runs.adapters` loads adapters, `dragoman.adapters` is their contract.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from dragoman.client.results import Result
from dragoman.errors import AdapterFailed, BudgetExceeded, DragomanError, RoleNotClaimed, UsageError

if TYPE_CHECKING:
    from dragoman.adapters import Adapter, Assignment, Notified

TOTAL_GRACE: Final = 5.0
"""Seconds that an adapter may take longer than the total budget of its assignment, to report the
timeout itself with what the peer said so far. An adapter that keeps no budget is cancelled then."""

log: Final = logging.getLogger("dragoman.adapters")


def choose_role(adapter: Adapter, wanted: str | None, *, source: str) -> str:
    """The role to work in: the wanted one, or else the first that the adapter claims.

    Raises `RoleNotClaimed`, or `UsageError` if it claims none. `source` names the adapter.
    """
    try:
        claimed = tuple(str(role) for role in adapter.ROLES_CLAIMED)
        if wanted is not None and not adapter.claims(wanted):
            raise RoleNotClaimed(adapter.name, wanted, claimed)
    except DragomanError:
        raise
    except Exception as error:
        raise _failed(adapter, source, error) from error
    if wanted is not None:
        return wanted
    if not claimed:
        raise UsageError(
            f"{source}, the adapter of {adapter.name}, claims no role: name one with --role that "
            "its `claims` accepts, or add one to its ROLES_CLAIMED"
        )
    return claimed[0]


async def dispatch(
    adapter: Adapter,
    assignment: Assignment,
    *,
    role: str,
    text: str,
    source: str,
    on_event: Notified | None = None,
) -> Result:
    """Let an adapter do one piece of work.

    Raises `AdapterFailed` if its code fails or returns no `Result`, `BudgetExceeded` if it takes
    longer than the total budget of the assignment, and any `DragomanError` of its peer.
    """
    total = None if assignment.budgets is None else assignment.budgets.total
    limit = None if total is None else total + TOTAL_GRACE
    clock = asyncio.timeout(limit)
    try:
        async with clock:
            result: object = await adapter.dispatch(assignment, role, text, on_event)
    except DragomanError:
        raise
    except (Exception, SystemExit) as error:
        if clock.expired() and total is not None:
            raise BudgetExceeded("total", total) from error
        raise _failed(adapter, source, error) from error
    if not isinstance(result, Result):
        raise AdapterFailed(
            adapter.name, source, f"its dispatch returned {type(result).__name__}, not a Result"
        )
    return result


def _failed(adapter: Adapter, source: str, error: BaseException) -> AdapterFailed:
    log.debug("%s, the adapter of %s, failed", source, adapter.name, exc_info=error)
    return AdapterFailed(adapter.name, source, f"{type(error).__name__}: {error}")


__all__ = ["TOTAL_GRACE", "choose_role", "dispatch"]

"""docs/reference/http-api.md lists exactly the requests that the console answers."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from starlette.routing import Route, WebSocketRoute

from dragoman.config.schema import HostSettings
from dragoman.console import host_routes, ledger_routes, peer_routes
from dragoman.console.access import ConsoleAccess
from dragoman.console.app import ConsoleApp
from dragoman.console.fleet_watch import FleetWatch
from dragoman.console.live_state import LiveState
from dragoman.console.questions import OpenForm, OpenPermission
from dragoman.console.work_items import summary_of
from dragoman.delegation.review.changes import ReviewChange, ReviewFile
from dragoman.delegation.review.session_review import Review
from dragoman.paths import VARIABLES, Paths
from dragoman.store.records import JobRecord
from tests.docs.markdown import ROOT, section

DOCUMENT = ROOT / "docs" / "reference" / "http-api.md"


def served(folder: Path) -> set[str]:
    places: Any = {name: folder / name for name in Paths.__struct_fields__}
    state = LiveState(Paths(**places), answers=False)
    access = cast(ConsoleAccess, SimpleNamespace())
    app = ConsoleApp(access, state, fleet=FleetWatch(state), read_only=False, secure=False)
    found = set()
    for route in app.asgi.routes:
        if isinstance(route, WebSocketRoute):
            found.add(f"GET {route.path}")
        elif isinstance(route, Route) and route.path.startswith("/api/"):
            found |= {f"{method} {route.path}" for method in (route.methods or set()) - {"HEAD"}}
    return found


def documented() -> set[str]:
    found = set()
    for line in DOCUMENT.read_text("utf-8").splitlines():
        named = re.findall(r"`((?:GET|POST) /api/[^`?]*)[^`]*`((?:, `/\w+`)*)", line)
        for request, others in named:
            found.add(request)
            parent = request.rpartition("/")[0]
            found |= {parent + each for each in re.findall(r"/\w+", others)}
    return found


def test_every_request_of_the_console_is_documented_and_no_other(tmp_path: Path) -> None:
    assert documented() == served(tmp_path)


def described(heading: str) -> list[list[str]]:
    """Return the fields of each table under a heading, in order."""
    found: list[list[str]] = []
    for line in section(DOCUMENT, heading):
        if line.startswith("| field |"):
            found.append([])
        elif line.startswith("| `"):
            found[-1] += re.findall(r"`(\w+)`", line.split("|")[1])
    return found


def camel(kind: type[msgspec.Struct]) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(kind)]


def test_the_fields_of_questions_are_those_of_the_code() -> None:
    shared, permission, form = described("QUESTION")
    assert [*shared, *permission] == ["type", *camel(OpenPermission)]
    assert [*shared, *form] == ["type", *camel(OpenForm)]


def test_the_fields_of_items_are_those_of_the_code() -> None:
    item, session, job = described("ITEM")
    record = JobRecord(
        id="j-1", session_key="s-1", peer="p", root="/", created_at=1.0, state="ended"
    )
    made = summary_of("s-1", [record], waiting=False)
    assert {*made, "session", "peer", "root"} == set(item)
    assert {*made["job"], "unseen"} == set(job)
    assert set(session) == {"cwd", "name", "title", "model", "mode", "closedAt", "events"}


def test_the_fields_of_reviews_are_those_of_the_code() -> None:
    review, file, change = described("REVIEW")
    assert review == [*camel(Review), "comments", "checking", "checkProblem"]
    assert (file, change) == (camel(ReviewFile), camel(ReviewChange))


def test_the_fields_of_peers_hosts_and_rows_are_those_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, str(tmp_path / variable))
    status = peer_routes.status_of_all()["peers"][0]
    assert described("PEER") == [list(status)]
    state = cast(Any, SimpleNamespace(paths=None))
    host = host_routes.HostRoutes(state)._shown("box", HostSettings(), None)
    assert described("HOST") == [list(host)]
    assert described("ROW") == [list(ledger_routes._row("review", None))]

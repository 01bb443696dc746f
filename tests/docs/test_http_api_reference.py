"""docs/reference/http-api.md lists exactly the requests that the console answers."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from starlette.routing import Route, WebSocketRoute

from dragoman.console.access import ConsoleAccess
from dragoman.console.app import ConsoleApp
from dragoman.console.fleet_watch import FleetWatch
from dragoman.console.live_state import LiveState
from dragoman.paths import Paths
from tests.docs.markdown import ROOT

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

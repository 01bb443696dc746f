"""Names in the source: nouns of the field, no metaphors, one meaning for each class name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

SOURCE = ROOT / "src" / "dragoman"

NOUNS = {
    # Words in -ing that are nouns of the field, or name a thing rather than an action.
    "delegation/bandit/sampling": "Thompson sampling",
    "delegation/learning": "what the bandit learns from an attempt",
    "delegation/permission_ceiling": "a ceiling is a thing",
    "wire/framing": "message framing",
    "delegation/routing": "routing",
    "testing": "the test kit",
    "agent/pending": "an adjective: the value that a call returns before it is awaited",
}

METAPHORS = re.compile(
    r"(?:^|_)(?:desk|shelf|voice|hall|reins|errands?|knock|scribe|slips?|crowd|wish(?:es)?|talk"
    r"|door|entrance|witness|climb|lessons|books|far|front(?!_?matter)|visit|eavesdrop|memory_lane)"
    r"(?:_|$)"
)
"""Words that once stood for something else: a search for the subject does not find them."""

SHARED = {
    # The same idea seen from both ends of a connection; programs use one of the two.
    "BlockingTurn": {"agent/sync_handlers", "client/sync"},
    "Session": {"agent/session", "client/acp/session"},
    "Turn": {"agent/turn", "client/acp/turn"},
}

OWN_NAMES = ("dialects", "testing", "hub")
"""Wire shapes have the names that their protocol gives them; the steps of scripts in the test kit
are words of a script; `hub` keeps names of the last release."""


def modules() -> dict[str, Path]:
    """Return every module by its path without the suffix; packages by their directory."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).with_suffix("")
        name = place.parent if place.name == "__init__" else place
        found[name.as_posix()] = path
    return found


def classes(path: Path) -> list[str]:
    body = ast.parse(path.read_text("utf-8")).body
    return [node.name for node in body if isinstance(node, ast.ClassDef)]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def test_no_module_is_named_by_a_gerund() -> None:
    gerunds = {name for name in modules() if name.rpartition("/")[2].endswith("ing")}
    assert gerunds == set(NOUNS)


def test_no_module_and_no_class_is_named_by_a_metaphor() -> None:
    found = [name for name in modules() if METAPHORS.search(name.rpartition("/")[2])] + [
        f"{name}: {each}"
        for name, path in modules().items()
        for each in classes(path)
        if METAPHORS.search(snake(each.strip("_")))
    ]
    assert found == []


def test_no_class_name_has_two_meanings() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for name, path in modules().items():
        if name.partition("/")[0] not in OWN_NAMES:
            for each in classes(path):
                if not each.startswith("_"):
                    places[each].add(name)
    assert {each: at for each, at in places.items() if len(at) > 1} == SHARED


METHOD = re.compile(
    r"(?<![\w./~-])(?:session|fs|terminal|elicitation|thread|turn|item|account|serverRequest"
    r"|_dragoman)/"
    r"|\A(?:initialized?|authenticate|logout)\Z"
)
"""Matches the name of a method, or its beginning, also as a part of a longer text or an f-string.
"""

SPELLED = {
    "broker/protocol": "the names of the broker's own methods, once",
    "broker/host_protocol": "the names of the methods between two machines, once",
    "verify/probes": "what the ladder asks that no client asks on purpose",
    "verify/canary_mcp_server": "an MCP server, which speaks another protocol",
    "mcp_server/stdio_entry": "an MCP server, which speaks another protocol",
}

SPELLING = {
    # The packages that speak a protocol, and those below them. All others are above the clients.
    *("client", "agent", "dialects", "rpc", "wire", "transports", "events", "redaction", "errors"),
    "testing",  # peers of its own, which share no code with the dialects
}


def documentation(tree: ast.Module) -> set[int]:
    """Return the ids of strings that are statements: documentation, which is never sent."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def spelled(source: str) -> list[tuple[int, str]]:
    tree = ast.parse(source)
    apart = documentation(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in apart:
            value = node.value
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if isinstance(text, str) and METHOD.search(text):
                found.append((node.lineno, text))
    return found


@pytest.mark.parametrize(
    "source",
    [
        'call("session/new")',
        'call(b\'{"method":"session/cancel"}\')',
        'call(f"session/{name}")',
        'call("thread/" + name)',
        'native.startswith("session/update:")',
        'call("initialize")',
    ],
)
def test_a_method_is_found_however_it_is_spelled(source: str) -> None:
    assert spelled(source)


@pytest.mark.parametrize(
    "source", ['"""Sends `session/new`."""', 'open(".config/session/x")', 'say("initialize it")']
)
def test_what_is_not_a_method_is_not_found(source: str) -> None:
    assert not spelled(source)


def test_no_package_above_the_clients_spells_a_method_of_a_protocol() -> None:
    found = [
        f"{name}:{line}: {text}"
        for name, path in modules().items()
        if name.partition("/")[0] not in SPELLING and name not in SPELLED
        for line, text in spelled(path.read_text("utf-8"))
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    for name in SPELLED:
        assert spelled(modules()[name].read_text("utf-8")), name

"""Names in the source: nouns of the field, no metaphors, one meaning for each class name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

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
"""Words that stood for something else: a reader who looks for the thing does not find them."""

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
    """Every module by its path without the ending; packages by their folder."""
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
    r"(?:session|fs|terminal|thread|turn|item|_dragoman)/[a-z_]+|initialize|authenticate"
)

SPELLED = {
    "broker/methods": "the names of the broker's own methods, once",
    "broker/protocol": "every message of a broker, once",
    "verify/probes": "what the ladder asks that no client asks on purpose",
    "verify/canary_server": "an MCP server, which speaks another protocol",
    "mcp_server/early_responses": "an MCP server, which speaks another protocol",
}

ABOVE_CLIENT = (
    *("policy", "config", "catalogue", "adapters", "store", "broker", "runs", "delegation"),
    *("verify", "setup", "mcp_server", "acp_server", "cli", "paths"),
)


def test_no_package_above_the_clients_spells_a_method_of_a_protocol() -> None:
    found = []
    for name, path in modules().items():
        if name.partition("/")[0] not in ABOVE_CLIENT or name in SPELLED:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Constant):
                continue
            value = node.value
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if isinstance(text, str) and METHOD.fullmatch(text):
                found.append(f"{name}:{node.lineno}: {text}")
    assert found == []

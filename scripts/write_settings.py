"""Write the settings reference in docs/reference/configuration.md: type, default and example.

    python scripts/write_settings.py

Everything but the examples comes from `dragoman.config.schema`. The script replaces everything
after the line ``<!-- from the code -->``. tests/docs/test_settings_reference.py checks that the
page is up to date and that each example is a valid settings file.
"""

from __future__ import annotations

import ast
import inspect
import json
import types
import typing
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, Union

import msgspec

from dragoman.client.budgets import Budgets
from dragoman.config import schema
from dragoman.policy.rules import PolicySettings
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "configuration.md"
MARK: Final = "<!-- from the code -->\n"

SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "": schema.Settings,
    "timeouts": schema.Timeouts,
    "limits": schema.DelegationLimits,
    "local_model": schema.LocalModelSettings,
    "peer.NAME": schema.PeerSettings,
    "hosts.BOX": schema.HostSettings,
}
"""The tables of the settings file. `[peer.NAME.limits]` has the same keys as `[limits]`."""

EXAMPLES: Final = {
    "enabled_peers": '["codex", "gemini"]',
    "default_peer": '"codex"',
    "permissions": '"approve-reads"',
    "format": '"json"',
    "max_line_size": "33554432",
    "warm": "false",
    "ttl": "600",
    "question_timeout": "28800",
    "max_idle_brokers": "2",
    "keep_days": "30",
    "max_store_size": "1000000000",
    "agent_files": '[".claude/agents/*.md"]',
    "adaptive": '"on"',
    "fallback": '"peers"',
    "max_depth": "2",
    "require_card": "true",
    "check": '"pytest -q"',
    "timeouts.initialize": "60",
    "timeouts.session": "60",
    "timeouts.request": "30",
    "timeouts.first_event": "120",
    "timeouts.silence": '"never"',
    "timeouts.tool_silence": "3600",
    "timeouts.total": "600",
    "timeouts.cancel_grace": "10",
    "limits.turn_cost": "0.5",
    "limits.turn_tokens": "200000",
    "limits.turn_seconds": "900",
    "limits.silence": "300",
    "limits.day_cost": "20.0",
    "limits.day_tokens": "5000000",
    "limits.day_seconds": "14400",
    "limits.day_turns": "200",
    "local_model.api": '"openai"',
    "local_model.model": '"some-model"',
    "local_model.base_url": '"http://127.0.0.1:11434/v1"',
    "local_model.key_variable": '"MY_MODEL_KEY"',
    "local_model.max_tokens": "4096",
    "local_model.system": '"Answer in one paragraph."',
    "local_model.competes": "true",
    "peer.NAME.env": '["MY_PROVIDER_KEY", "MY_PROXY_*"]',
    "peer.NAME.model": '"some-model"',
    "peer.NAME.mode": '"plan"',
    "peer.NAME.roles": '["review", "exploration"]',
    "peer.NAME.permissions": '"ask"',
    "peer.NAME.allow_unenforced": "true",
    "hosts.BOX.destination": '"me@box.example.org"',
    "hosts.BOX.dragoman": '"/home/me/.local/bin/dragoman"',
    "hosts.BOX.ssh_options": '["-p", "2222"]',
    "hosts.BOX.workspace": '"/home/me/src/project"',
}
"""An example value for each key, in TOML syntax."""


def sections() -> Iterator[str]:
    """The generated part of the page, line by line."""
    for section, struct in SECTIONS.items():
        yield from ("", f"### {f'[{section}]' if section else 'Top level'}", "")
        yield _paragraph(inspect.getdoc(struct) or "")
        yield from _keys(section, struct)


def _keys(section: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    described = _described(struct)
    for field in msgspec.structs.fields(struct):
        if _is_table(field.type):
            continue
        key = f"{section}.{field.name}" if section else field.name
        yield from ("", f"#### `{key}`", "", described[field.name], "")
        yield f"- Type: {type_name(field.type)}"
        yield f"- Default: {_default(section, field)}"
        yield f"- Example: `{example(key)}`"


def _described(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Each key and its docstring in the source."""
    (definition,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for key, text in pairwise(definition.body):
        if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(key.target, ast.Name) and isinstance(text.value, ast.Constant)
            found[key.target.id] = _paragraph(str(text.value.value))
    return found


def _paragraph(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def example(key: str) -> str:
    """A line of a settings file that sets a key by its full name."""
    return f"{key.replace('NAME', 'codex').replace('BOX', 'box')} = {EXAMPLES[key]}"


def _is_table(kind: Any) -> bool:
    return typing.get_origin(kind) is dict or (
        isinstance(kind, type) and issubclass(kind, (msgspec.Struct, PolicySettings))
    )


def type_name(kind: Any) -> str:
    """The name of a type, in TOML terms."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _either([f'`"{each}"`' for each in arguments])
    if origin in (Union, types.UnionType):
        return _either([type_name(each) for each in arguments if each is not types.NoneType])
    if origin is tuple:
        return "list of strings"
    return {bool: "`true` or `false`", int: "whole number", float: "number", str: "string"}[kind]


def _either(choices: list[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _default(section: str, field: msgspec.structs.FieldInfo) -> str:
    default = field.default
    if section == "timeouts":
        default = getattr(Budgets(), field.name)
        if default is None:
            default = schema.NEVER
    if field.name == "max_line_size":
        default = DEFAULT_MAX_LINE_SIZE
    if default is None:
        return "not set"
    if default in ((), ""):
        return "empty"
    if isinstance(default, float):
        default = int(default) if default.is_integer() else default
    return f"`{json.dumps(default)}`"  # these values look the same in TOML


def page(text: str) -> str:
    """The text of the page with its generated part updated."""
    head, mark, _ = text.partition(MARK)
    return head + mark + "\n".join(sections()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")

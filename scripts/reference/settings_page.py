"""The keys of the settings files, for docs/reference/configuration.md: type, default and example.

Everything but the examples comes from `dragoman.config.schema`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dragoman.client.budgets import Budgets
from dragoman.config import schema
from dragoman.delegation.local_model.model import MAX_TOKENS
from dragoman.policy.rules import PolicySettings
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from scripts.reference.members import paragraphs
from scripts.reference.toml_keys import Table, keys, shown

TABLES: Final = (
    Table(
        "",
        schema.Settings,
        intro="In a file, these keys come before the first table.",
        defaults={
            "default_peer": "the only enabled peer, otherwise the last one used",
            "max_line_size": f"`{DEFAULT_MAX_LINE_SIZE}`",
        },
    ),
    Table(
        "timeouts",
        schema.Timeouts,
        intro="Time limits in seconds.",
        defaults={
            name: shown(schema.NEVER if limit is None else limit)
            for name, limit in msgspec.structs.asdict(Budgets()).items()
        },
    ),
    Table("limits", schema.DelegationLimits),
    Table(
        "local_model",
        schema.LocalModelSettings,
        defaults={
            "base_url": "Anthropic's API; `openai` has no default",
            "key_variable": "`ANTHROPIC_API_KEY` or `OPENAI_API_KEY`, depending on `api`",
            "max_tokens": f"`{MAX_TOKENS}`",
        },
    ),
    Table("peer.NAME", schema.PeerSettings),
    Table(
        "hosts.BOX",
        schema.HostSettings,
        defaults={
            "destination": "the name of the table",
            "dragoman": "`dragoman` on the `PATH` of that machine",
        },
    ),
)
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


def lines() -> Iterator[str]:
    """The generated part of the page, line by line."""
    for table in TABLES:
        yield from ("", f"### {table.heading}", "")
        yield table.intro or "\n\n".join(paragraphs(table.struct.__doc__))
        for name, kind, default, what in keys(table, exclude=_is_table):
            key = f"{table.name}.{name}" if table.name else name
            yield from ("", f"#### `{key}`", "", what, "")
            yield f"- Type: {kind}"
            yield f"- Default: {default}"
            yield f"- Example: `{example(key)}`"


def example(key: str) -> str:
    """A line of a settings file that sets a key by its full name."""
    return f"{key.replace('NAME', 'codex').replace('BOX', 'box')} = {EXAMPLES[key]}"


def _is_table(kind: Any) -> bool:
    return typing.get_origin(kind) is dict or (
        isinstance(kind, type) and issubclass(kind, (msgspec.Struct, PolicySettings))
    )

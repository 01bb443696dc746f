"""The tables of a peer's descriptor and of the permission policy, with an example for each.

For docs/reference/descriptor.md and docs/reference/policy.md. Everything but the examples comes
from `dragoman.catalogue.descriptor` and `dragoman.policy.rules`.
"""

from __future__ import annotations

from typing import Final

from dragoman.catalogue import descriptor
from dragoman.client.budgets import Budgets
from dragoman.policy import rules
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from scripts.reference.toml_keys import Table, shown

UNLISTED: Final = dict.fromkeys(descriptor.SessionSupport.__struct_fields__, "not supported")
USUAL: Final = dict.fromkeys(descriptor.CanaryPrompts.__struct_fields__, "the usual prompt")

DESCRIPTOR: Final = (
    Table(
        "",
        descriptor.Descriptor,
        intro="In a file, the keys that are not tables come before the first table.",
        defaults={
            "max_line_size": f"`{DEFAULT_MAX_LINE_SIZE}`",
            "handshake_timeout": shown(Budgets().initialize),
        },
        example="""
name = "mine"
title = "My agent"
protocol = "acp"
roles = ["plan", "review"]
role_prefixes = { review = "/review " }
tiers = { fast = "small-model", strong = "large-model" }
env = { MY_AGENT_TELEMETRY = "off" }
handshake_timeout = 60
source = "my-agent 1.2.0, 2026-11-15"
notes = "It needs an account."
""",
    ),
    Table(
        "launch",
        descriptor.Launch,
        array=True,
        example="""
[[launch]]
command = ["my-agent", "--acp"]

[[launch]]
command = ["my-agent", "--experimental-acp"]
platforms = ["linux", "macos"]
deprecated = true
""",
    ),
    Table(
        "wrong_forms",
        descriptor.WrongForm,
        array=True,
        example="""
[[wrong_forms]]
command = ["my-agent", "acp"]
effect = "my-agent treats the word as a prompt and sends its input to its model"
remedy = "`my-agent --acp`"
dangerous = true
""",
    ),
    Table(
        "version",
        descriptor.VersionSource,
        example="""
[version]
how = "package"
package = "@example/my-agent"
""",
    ),
    Table(
        "models",
        descriptor.Models,
        example="""
[models]
listing = "command"
command = ["my-agent", "models"]
flag = "--model"
""",
    ),
    Table(
        "credentials",
        descriptor.Credentials,
        example="""
[credentials]
env = ["MY_AGENT_KEY"]
endpoints = ["MY_AGENT_BASE_URL"]
login = "run `my-agent login`"
""",
    ),
    Table(
        "install",
        descriptor.Install,
        example="""
[install]
hint = "npm install -g my-agent"
node = 22
""",
    ),
    Table(
        "quirks",
        descriptor.Quirks,
        example="""
[quirks]
reject_ends_turn = true
login_shown_in = "prompt"
error_texts = ["Error: "]
""",
    ),
    Table(
        "enforcement",
        descriptor.Enforcement,
        example="""
[enforcement]
arguments = ["--no-auto-approve"]
modes = ["ask", "plan"]
""",
    ),
    Table(
        "mcp",
        descriptor.McpServers,
        example="""
[mcp]
ignored = ["sse"]
env = { MY_AGENT_TRUST_WORKSPACE = "true" }
trusts = [".my-agent"]
""",
    ),
    Table("session", descriptor.SessionSupport, defaults=UNLISTED),
    Table(
        "session.SETTING",
        descriptor.SettingWay,
        example="""
[session.system_prompt]
arguments = ["--append-system-prompt", "{value}"]

[session.max_turns]
detail = "session_meta.limits.turns"
""",
    ),
    Table(
        "canaries",
        descriptor.CanaryPrompts,
        defaults=USUAL,
        example="""
[canaries]
echo = "say {token}"
slow = "count to 500"
write = "/write {path} {text}"
shell = "/run {command}"
tool = ""
""",
    ),
)
"""The tables of a descriptor, in the order of its keys."""

POLICY: Final = (
    Table("policy", rules.PolicySettings),
    Table(
        "policy.rules",
        rules.Rule,
        array=True,
        intro="What a rule matches, and what happens then. `[[policy.limits]]` has the same keys.",
        example="""
[[policy.rules]]
action = "ask"
kind = ["edit", "delete"]
paths = ["migrations/**"]
peer = "codex"
why = "migrations are reviewed first"

[[policy.limits]]
action = "deny"
commands = ["git push"]
""",
    ),
)
"""The table `[policy]` of a settings file."""

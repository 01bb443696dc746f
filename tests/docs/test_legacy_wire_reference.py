"""The page on legacy dialects shows valid messages of each, and contains their terms."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from dragoman.client.legacy import DIALECTS
from dragoman.dialects.legacy import chained
from tests.docs.markdown import ROOT, blocks, section, table
from tests.fixtures.documents import load

PAGE = ROOT / "docs" / "reference" / "legacy-wire.md"
DIALECTS_PAGE = ROOT / "docs" / "reference" / "dialects.md"

WORDS = {
    "oneshot": "2025-06-18 serverCapabilities agent_message_chunk tool_call file_change"
    " finish_reason onNotification protocol_mismatch process_exited peer-CLI createAcpClient",
    "threads": "ASP App·Server·Protocol threadStart threadResume turn service_name"
    " gdd_peer_delegation experimentalRawEvents rate_limit registry CAPABILITY_MATRIX"
    " ROLE_PREFIX provider_model_id enabled_peers spawn-cmd broker-lifecycle"
    " createAspClient peerBinary",
    "tagged": "agentkit Server OnPrompt SendMessageChunk SendToolCall messageChunk planUpdate"
    " endTurn metadata workDir session-1 CommandInput promptCapabilities embeddedContext"
    " NewServer ToolCallUpdate PromptResponse NDJSON",
    "keyed": "contentChunk permissionId providerID modelID authMethods authRequired tool_error"
    " outputBytesLimit resource_link embedded_resource once always reject OpenCode",
    "chained": "fallback·chains session/create prompt/send message/delta tool/start tool/result"
    " reasoning/delta turn/status nextOffset NormalizedEvent rawEvent CopilotAcpAdapter"
    " AcpSession",
}
"""Terms of each dialect's specification; a dot stands for a space within one."""


def examples(dialect: str) -> list[str]:
    _, _, behind = PAGE.read_text().partition(f"\n## {dialect}\n")
    part = behind.partition("\n## ")[0]
    return [
        line
        for block in blocks(PAGE)
        if block.info == "json" and block.text in part
        for line in block.text.splitlines()
    ]


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_every_example_is_a_message_of_the_document(dialect: str) -> None:
    known = [example.message for example in load(dialect).values()]
    shown = [json.loads(line) for line in examples(dialect)]
    assert len(shown) >= 7
    assert [message for message in shown if message not in known] == []


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_every_method_of_the_document_is_in_the_table(dialect: str) -> None:
    named = " ".join(row[1] for row in table(section(PAGE, dialect)))
    methods = {e.method for e in load(dialect).values() if not e.is_answer}
    assert {method for method in methods if f"`{method}`" not in named} == set()


def test_every_name_of_the_chains_is_in_the_table() -> None:
    named = " ".join(row[1] for row in table(section(PAGE, "chained")))
    chains: list[Sequence[str]] = [chained.LIST, chained.CREATE, chained.PROMPT, chained.TEXT]
    chains += [chained.TOOL_START, chained.TOOL_RESULT, chained.REASONING, chained.STATUS]
    for chain in chains:
        assert ", ".join(f"`{name}`" for name in chain) in named


@pytest.mark.parametrize("dialect", sorted(WORDS))
def test_an_author_who_searches_for_the_words_of_a_document_finds_the_dialect(
    dialect: str,
) -> None:
    pages = {path: path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    for word in WORDS[dialect].replace("·", "\0").split():
        word = word.replace("\0", " ")
        found = {path for path, text in pages.items() if word in text}
        assert found & {PAGE, DIALECTS_PAGE}, word
    rows = [row for row in table(section(DIALECTS_PAGE, "Terms in the specifications"))]
    assert any(f"legacy-wire.md#{dialect})" in row[1] for row in rows)

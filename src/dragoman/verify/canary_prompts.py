"""Prompts that the rungs send to a peer (canaries): echo, slow, write, shell, tool, failure.

They are written for a real model. A test with a fake model passes its own prompts, and a descriptor
can replace or empty them. The rungs judge the answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from dragoman.catalogue.descriptor import CanaryPrompts

NEVER: Final = "its descriptor says that it never {}"
"""Why a rung is skipped for a peer that lacks the feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """The prompts; words in braces are replaced. An empty prompt skips its rung."""

    echo: str = (
        "Answer with two or three short sentences about the sea and the word {token}. Use no tools."
    )
    slow: str = (
        "Count from 1 to 500 in words, one number on each line, without stopping. Use no tools."
    )
    slower: str = (
        "Count from 1 to 5000 in words, one number on each line, without stopping. Use no tools."
    )
    """Used if the turn with `slow` ended too soon to be cancelled. If empty, `slow` is sent
    again."""
    write: str = "Create the file {path} with exactly this content and nothing else: {text}"
    """Sent twice, for two files: the first write is allowed, the second refused."""
    shell: str = "Run this command in the shell and nothing else: {command}"
    tool: str = (
        "Call the tool {tool} of the MCP server {server} once, without arguments, and repeat "
        "what it says."
    )
    failure: str | None = None
    """Makes the model fail. A real model cannot be made to fail, so the default is None, which
    skips the rung."""


def canaries_for(prompts: CanaryPrompts) -> Canaries:
    """Return the default prompts, overridden by those of a peer's descriptor. A `slow` prompt also
    replaces `slower`."""
    given = {name: text for name, text in structs.asdict(prompts).items() if text is not None}
    if "slow" in given:
        given["slower"] = given["slow"]
    return replace(Canaries(), **given)


def fill(prompt: str, **words: str) -> str:
    """Return a prompt with its placeholders replaced. Other braces are left alone."""
    return re.sub(r"{(\w+)}", lambda found: words.get(found[1], found[0]), prompt)

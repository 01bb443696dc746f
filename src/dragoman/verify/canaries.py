"""Prompts that the rungs send to a peer (canaries): echo, slow, write, shell, tool, failure.

They are written for a real model. A test with a fake model passes its own, and a descriptor can
replace or empty them. The rungs judge the answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from dragoman.catalogue.descriptor import CanaryPrompts

NEVER: Final = "its descriptor says that it never {}"
"""Why a peer is not asked for what it has not got."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """The prompts; words in braces are replaced. What a peer cannot do has an empty one."""

    echo: str = (
        "Answer with two or three short sentences about the sea and the word {token}. Use no tools."
    )
    slow: str = (
        "Count from 1 to 500 in words, one number on each line, without stopping. Use no tools."
    )
    slower: str = (
        "Count from 1 to 5000 in words, one number on each line, without stopping. Use no tools."
    )
    """Asked for where the first one was over too soon; empty asks for the same again."""
    write: str = "Create the file {path} with exactly this content and nothing else: {text}"
    """Asked twice: the first time it is allowed, the second time it is refused."""
    shell: str = "Run this command in the shell and nothing else: {command}"
    tool: str = (
        "Call the tool {tool} of the MCP server {server} once, without arguments, and repeat "
        "what it says."
    )
    failure: str | None = None
    """Makes the model fail. Nobody can ask that of a real one, so it is left out by default."""


def canaries_for(prompts: CanaryPrompts) -> Canaries:
    """The usual canaries with those in their place that a peer's descriptor gives."""
    given = {name: text for name, text in structs.asdict(prompts).items() if text is not None}
    if "slow" in given:
        given["slower"] = given["slow"]
    return replace(Canaries(), **given)


def fill(prompt: str, **words: str) -> str:
    """A prompt with its words in braces replaced. Other braces are left alone."""
    return re.sub(r"{(\w+)}", lambda found: words.get(found[1], found[0]), prompt)

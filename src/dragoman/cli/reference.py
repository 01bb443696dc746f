"""Generate docs/reference/cli.md from the help texts of all commands.

``python -m dragoman.cli.reference > docs/reference/cli.md`` writes the page; a test fails when it
is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from dragoman.cli.app import new_command
from dragoman.cli.output.terminal import put_data

WIDTH: Final = 78
"""Width of the help texts on the page, as on a terminal with 80 columns."""

HEAD: Final = """# The command line

What `dragoman --help` and `dragoman COMMAND --help` print. This page is generated from those texts,
and a test compares them:

```sh
python -m dragoman.cli.reference > docs/reference/cli.md
```

`python -m dragoman` is the same command. See [exit codes](exit-codes.md) for how a command ended,
and [JSON lines](cli-json.md) for the output of `--format json`. `dragoman --install-completion`
lets your shell complete commands, options, peers, models, sessions, jobs and brokers.
"""


def page() -> str:
    """Return the whole page."""
    described = list(helps())
    parts = [HEAD, "\n".join(_index(described)) + "\n"]
    for path, text in described:
        parts.append(f"## {' '.join(path)}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _index(described: list[tuple[tuple[str, ...], str]]) -> Iterator[str]:
    """Yield the rows of a table of all commands, each linked to its place on the page and with its
    first sentence."""
    yield from ("## Index", "", "| command | what it does |", "|---|---|")
    for path, text in described[1:]:
        first, *_ = text.partition("\n\n")[2].split("\n\n")
        sentence = re.split(r"(?<=[.?])\s", " ".join(first.split()))[0]
        name = " ".join(path[1:])
        yield f"| [`{name}`](#{'-'.join(path)}) | {sentence.replace('|', chr(92) + '|')} |"


def helps(width: int = WIDTH) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every command path with its help text."""
    yield from _helps(new_command(), ("dragoman",), None, width)


def _helps(
    command: Any, path: tuple[str, ...], parent: Any, width: int
) -> Iterator[tuple[Any, str]]:
    # Resilient parsing: a command with a required argument is described, not called.
    context = command.make_context(
        path[-1], [], parent=parent, resilient_parsing=True, terminal_width=width
    )
    yield path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if not below.hidden:
                yield from _helps(below, (*path, name), context, width)


if __name__ == "__main__":
    put_data(sys.stdout, page())

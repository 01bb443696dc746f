"""A model that knows the command line from the skill's text alone, and does what the text says.

It follows the commands of a section in their order, in a shell, and puts what earlier commands
printed where the text has an example or a placeholder. It knows nothing else of dragoman: what it
cannot find out in this way, the text does not teach.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from typing import Any

from tests.integration.cli_shell import TIMEOUT, Cli, Done

TAUGHT = re.compile(r"^    (\S.*)$|`(dragoman [a-z][^`]*)`", re.MULTILINE)
"""A line of a block, or a call in the middle of a sentence."""

WORDS = re.compile(r"\"[^\"]*\"|#.*|\S+")
"""The words of a command. What is in quotes is for an agent, and stays as it is."""


@dataclass
class Model:
    """Follows the text, a section at a time."""

    cli: Cli
    text: str = ""
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    job: str = ""
    rest: list[str] = field(default_factory=list)
    """What the section teaches and was not done yet."""
    last: str = ""

    def begin(self) -> None:
        """Read the text."""
        self.text = shell(self.cli, "dragoman skill").out

    @property
    def sections(self) -> dict[str, str]:
        parts = re.split(r"^## (\w[^:\n]*).*$", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    @property
    def roles(self) -> list[str]:
        return re.findall(r"[a-z]+", self.text.partition("\nRoles are ")[2].partition(".")[0])

    def read(self, section: str) -> None:
        """Turn to a section."""
        self.rest = [block or call for block, call in TAUGHT.findall(self.sections[section])]

    def close(self) -> None:
        """The section is done."""
        assert self.rest == [], f"this is taught, and was not tried: {self.rest}"

    def follow(self, expected: str) -> Done:
        """Run the next command of the section, and say in the test which one that is."""
        assert self.rest, f"{expected!r} is not taught here"
        taught = self.rest.pop(0)
        assert expected in taught, f"{taught!r} is taught here, and not {expected!r}"
        self.last = WORDS.sub(lambda found: self._word(found[0]), taught)
        done = shell(self.cli, self.last)
        assert done.code == 0, f"{self.last}: {done}"
        if taught.startswith("dragoman peers --format json"):
            rows = [json.loads(line) for line in done.out.splitlines()]
            self.peers = {row["name"]: row for row in rows}
        elif taught.startswith("dragoman agents list"):
            self.files = re.findall(r"^\S+\.md\b", done.out, re.MULTILINE)
        elif "--no-wait" in taught:
            self.job = done.out.strip()
        return done

    def vary(self, old: str, new: str, *, code: int) -> Done:
        """Run the last command once more with something else in it, and without a shell."""
        assert old in self.last, f"{self.last!r} has no {old!r}"
        self.last = self.last.replace(old, new)
        done = self.cli(*shlex.split(self.last, comments=True)[1:])
        assert done.code == code, f"{self.last}: {done}"
        return done

    def _word(self, word: str) -> str:
        if word == "JOB":
            return self.job
        if word.endswith(".md"):
            return word if word in self.files else self.files[0]
        peer, _, role = word.rpartition("-")
        if peer in self.peers and role in self.roles:
            return f"{self._installed(peer, role)}-{role}"
        return self._installed(word) if word in self.peers else word

    def _installed(self, example: str, role: str | None = None) -> str:
        """The peer of the example if it is installed, else another that is, and has a model."""
        found = [
            name
            for name, peer in self.peers.items()
            if peer["installed"] and name != "scout" and role in (None, *peer["roles"])
        ]
        return example if example in found else found[0]


def shell(cli: Cli, line: str) -> Done:
    """Run a line as a model does."""
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)

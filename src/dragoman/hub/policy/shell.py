"""A line for a shell as the commands that it would run.

Owns the reading: quotes, separators, redirections, and commands inside of commands. What cannot be
known without running it stands as `UNKNOWN`, and what is not understood becomes a command that is
unknown as a whole, so that a reader never sees less than what would run. What the commands mean is
in `programs`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final

from dragoman.hub.policy.globs import UNKNOWN

MAX_LINE_SIZE: Final = 20_000
"""Characters of a line that is read. What is longer is a program, not a command."""

MAX_DEPTH: Final = 4
"""Commands inside of commands that are read."""

ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
DUPLICATE: Final = re.compile(r"&(\d+-?|-)(?=[\s;&|<>()]|$)")
"""What makes a descriptor a copy of another: no file is meant."""
GLOBS: Final = "*?["
STRIPPED: Final = frozenset(
    {"!", "{", "}", "if", "then", "else", "elif", "fi", "while", "until", "do", "done"}
)
"""Words of the shell before a command, or alone."""
UNREAD: Final = frozenset({"for", "case", "esac", "select", "function", "coproc", "in"})
"""Words of the shell after which words are no commands."""


@dataclass(frozen=True, slots=True)
class Command:
    """One program with its words."""

    words: tuple[str, ...]
    tainted: bool = False
    """Whether something about it is not in its words: an environment, a file it writes to."""


ANYTHING: Final = Command((UNKNOWN,), tainted=True)
"""A command of which nothing is known."""


@dataclass(slots=True)
class Line:
    """What a line would run, write and read."""

    commands: list[Command] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)


def read_line(text: str, *, posix: bool = os.name != "nt", depth: int = 0) -> Line:
    """The commands of a line. Lines for other shells than POSIX ones are not understood."""
    line = Line()
    if not posix or depth > MAX_DEPTH or len(text) > MAX_LINE_SIZE:
        line.commands.append(ANYTHING)
        return line
    reader = _Reader(text.replace("\r\n", "\n"), line, depth)
    try:
        reader.read()
    except _NotUnderstood:
        reader.word = None
        reader.end_command()
        line.commands.append(ANYTHING)
    return line


class _NotUnderstood(Exception):
    """The rest of the line could be anything."""


class _Reader:
    def __init__(self, text: str, line: Line, depth: int) -> None:
        self.text = text
        self.line = line
        self.depth = depth
        self.at = 0
        self.word: list[str] | None = None
        self.quoted = False
        self.words: list[str] = []
        self.tainted = False
        self.target: str | None = None

    def read(self) -> None:
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            self.at += 1
            if char in " \t":
                self.end_word()
            elif char == "\n" or char == ";":
                self.end_command()
            elif char == "&":
                self._ampersand()
            elif char == "|":
                self.end_command()
                if self._next() == "&":
                    self.at += 1
            elif char in "<>":
                self._redirect(char)
            elif char == "(":
                if self.word is not None or self.words:
                    raise _NotUnderstood
                self.tainted = True
            elif char == ")":
                self.end_command()
            elif char == "#" and self.word is None:
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                self._piece(char)
        self.end_command()

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _put(self, piece: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(piece)

    def _piece(self, char: str) -> None:
        if char == "\\":
            following = self._next()
            if not following:
                raise _NotUnderstood
            self.at += 1
            if following != "\n":
                self._put(following)
        elif char == "'":
            self._put(self._until("'"))
            self.quoted = True
        elif char == '"':
            self.quoted = True
            self._double()
        elif char == "$":
            self._dollar(quoted=False)
        elif char == "`":
            self._inside(self._until("`").replace("\\`", "`"))
        elif char == "[" and self.word in (None, ["["]) and self._next() in ("[", " ", "\t"):
            # A test, which is a command and no glob.
            self._put(char)
        elif char in GLOBS or (char == "{" and self._next() not in ("", " ", "\t", "\n")):
            self._put(UNKNOWN)
        elif char < " " or char == "\x7f":
            raise _NotUnderstood
        else:
            self._put(char)

    def _until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise _NotUnderstood
        found = self.text[self.at : stop]
        if end == "`" and found.endswith("\\"):
            raise _NotUnderstood
        self.at = stop + 1
        return found

    def _double(self) -> None:
        self._put("")
        while True:
            char = self._next()
            self.at += 1
            if not char or char == UNKNOWN:
                raise _NotUnderstood
            if char == '"':
                return
            if char == "\\" and self._next() in ("$", "`", '"', "\\", "\n"):
                following = self._next()
                self.at += 1
                if following != "\n":
                    self._put(following)
            elif char == "$":
                self._dollar(quoted=True)
            elif char == "`":
                self._inside(self._until("`").replace("\\`", "`"))
            else:
                self._put(char)

    def _dollar(self, *, quoted: bool) -> None:
        rest = self.text[self.at :]
        if rest.startswith("(("):
            inner = self._balanced("(", ")")
            if "$(" in inner or "`" in inner:
                raise _NotUnderstood
            self._put(UNKNOWN)
        elif rest.startswith("("):
            self._inside(self._balanced("(", ")"))
        elif rest.startswith("{"):
            inner = self._balanced("{", "}")
            if "$(" in inner or "`" in inner:
                raise _NotUnderstood
            self._put(UNKNOWN)
        elif rest.startswith("'") and not quoted:
            self.at += 1
            if self._until("'").endswith("\\"):
                raise _NotUnderstood
            self._put(UNKNOWN)
        elif rest.startswith('"') and not quoted:
            return
        elif name := re.match(r"[A-Za-z_]\w*|[0-9@*#?$!\-]", rest):
            self.at += name.end()
            self._put(UNKNOWN)
        else:
            self._put("$")

    def _balanced(self, opening: str, closing: str) -> str:
        """What stands between brackets, of which the first is next."""
        begin, level = self.at + 1, 0
        quote = ""
        while True:
            char = self._next()
            self.at += 1
            if not char:
                raise _NotUnderstood
            if quote:
                if char == "\\" and quote == '"':
                    self.at += 1
                elif char == quote:
                    quote = ""
            elif char == "\\":
                self.at += 1
            elif char in "'\"":
                quote = char
            elif char == opening:
                level += 1
            elif char == closing:
                level -= 1
                if level == 0:
                    return self.text[begin : self.at - 1]

    def _inside(self, text: str) -> None:
        """A command whose output becomes a part of the line."""
        inner = read_line(text, posix=True, depth=self.depth + 1)
        self.line.commands += inner.commands
        self.line.writes += inner.writes
        self.line.reads += inner.reads
        self._put(UNKNOWN)

    def _ampersand(self) -> None:
        if self._next() == ">":
            self.end_word()
            self.at += 1
            if self._next() == ">":
                self.at += 1
            self._begin_target("write")
        else:
            self.end_command()

    def _redirect(self, char: str) -> None:
        if self._next() == "(":
            self._inside(self._balanced("(", ")"))
            return
        if self.word is not None and not self.quoted and "".join(self.word).isdigit():
            self.word = None
        self.end_word()
        rest = self.text[self.at :]
        if char == "<":
            if rest.startswith("<<"):
                self.at += 2
                self._begin_target("data")
            elif rest.startswith("<"):
                raise _NotUnderstood
            elif rest.startswith(">"):
                self.at += 1
                self._begin_target("write")
            elif duplicate := DUPLICATE.match(rest):
                self.at += duplicate.end()
            else:
                self._begin_target("read")
        elif duplicate := DUPLICATE.match(rest):
            self.at += duplicate.end()
        else:
            self.at += 1 if rest[:1] in (">", "|", "&") else 0
            self._begin_target("write")

    def _begin_target(self, target: str) -> None:
        if self.target is not None:
            raise _NotUnderstood
        self.target = target

    def end_word(self) -> None:
        if self.word is None:
            return
        word, self.word = "".join(self.word), None
        quoted, self.quoted = self.quoted, False
        target, self.target = self.target, None
        if target == "write":
            if word != "/dev/null":
                self.line.writes.append(word)
                self.tainted = True
        elif target == "read":
            self.line.reads.append(word)
        elif target == "data":
            self.tainted = True
        elif self.words:
            self.words.append(word)
        elif ASSIGNMENT.match(word):
            self.tainted = True
        elif word in STRIPPED and not quoted:
            self.tainted = True
        elif word in UNREAD and not quoted:
            raise _NotUnderstood
        else:
            self.words.append(word)

    def end_command(self) -> None:
        self.end_word()
        if self.target is not None:
            self.target = None
            self.line.commands.append(ANYTHING)
        if self.words:
            self.line.commands.append(Command(tuple(self.words), self.tainted))
        elif self.tainted:
            # A redirection alone empties its file, and a variable alone counts for what follows.
            self.line.commands.append(Command((":",), tainted=True))
        self.words, self.tainted = [], False

"""Parse a shell command line into the commands that it would run and the files that it writes.

A line is accepted only if two independent checks agree: a strict check of its characters, which
rejects everything that two POSIX shells interpret differently, and the grammar of tree-sitter-bash,
limited to plain commands, lists and pipelines. Any other line becomes `ANYTHING`, an unknown
command. `command_expansion` determines what the commands do.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from dragoman.policy.globs import UNKNOWN

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_LINE_SIZE: Final = 20_000
"""Maximum length of a line, in characters. A longer one is a program, not a command."""

MAX_DEPTH: Final = 4
"""Maximum depth of commands inside commands."""

ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")

# -- the strict check

CHARACTERS: Final = re.compile(r"[\n -~]*")
QUOTED: Final = re.compile(r"'[^']*'|\"[^\"\\$`!]*\"")
"""Plain pairs of quotes. A double-quoted text with an expansion does not match."""
SPECIAL: Final = re.compile(r"[\\`$!{}()<]|(?<![^\s;&|>])[~=#]")
"""Characters with a special meaning outside quotes: `~`, `=` and `#` where a word begins."""
OPERATOR: Final = re.compile(r"[;&|>]+")
OPERATORS: Final = frozenset({";", "&", "&&", "|", "||", ">", ">>"})
"""The operators that all shells parse alike. `&>`, `>&` and `|&` are not among them."""
JOINED_REDIRECTION: Final = re.compile(r"(?<![\s>])(?<!\s[0-9])(?<!^)(?<!^[0-9])>", re.MULTILINE)
"""Matches a redirection without a space before it or before its descriptor: shells disagree about
which digits belong to the word."""

# -- the grammar

COMMAND_NAME: Final = re.compile(r"[A-Za-z0-9_./](?:[A-Za-z0-9_./+,@%:-]*[A-Za-z0-9_./+,@%-])?")
"""The form of a command name. With a colon at the end, ksh would treat the word as a label and the
next word as the command."""
UNREADABLE_NAMES: Final = frozenset(
    """
    if then else elif fi case esac for select while until do done in function time coproc
    foreach end repeat always noglob nocorrect namespace begin and or not
    . source eval exec command builtin trap alias unalias hash enable disable set setopt unsetopt
    shopt export declare typeset local readonly unset let read mapfile readarray getopts getln
    pushln bind bindkey complete compgen compopt compdef fc r hist history jobs fg bg wait emulate
    autoload functions zmodload sched zcompile zle vared zstyle zparseopts zargs zmv print integer
    float private nameref compound enum redirect rehash limit ulimit umask exit return break
    continue shift suspend logout login newgrp
    """.split()
)
"""Words of the POSIX shells, zsh and ksh that run other code, or change the meaning of later
words."""
GROUPS: Final = frozenset({"program", "list", "pipeline"})
PLAIN: Final = frozenset({"word", "number", "raw_string", "string", "concatenation"})
GLOBS: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One program with its arguments."""

    words: tuple[str, ...]
    tainted: bool = False
    """Whether it has more than its words show: an environment, or a file it writes to."""


ANYTHING: Final = ShellCommand((UNKNOWN,), tainted=True)
"""A command about which nothing is known."""


@dataclass(slots=True)
class ShellLine:
    """What a line would run and write."""

    commands: list[ShellCommand] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    problem: str = ""
    """Why the line is unknown; empty if it was parsed."""


class _NotReadable(Exception):
    """The line could do anything. The message says why."""


def read_line(text: str, *, posix: bool = os.name != "nt", depth: int = 0) -> ShellLine:
    """Parse a line into its commands. A line that cannot be parsed becomes `ANYTHING`, with the
    reason in `problem`. Unless `posix`, no line is parsed: it may be for cmd.exe or PowerShell."""
    try:
        if not posix:
            raise _NotReadable("command lines are not parsed on this system")
        if depth > MAX_DEPTH or len(text) > MAX_LINE_SIZE:
            raise _NotReadable("it is too long or nested too deeply")
        _check_characters(text)
        return _read_tree(text)
    except _NotReadable as error:
        # A redirection always contains this character.
        writes = [UNKNOWN] if ">" in text else []
        return ShellLine([ANYTHING], writes, str(error))


def _check_characters(text: str) -> None:
    if not CHARACTERS.fullmatch(text):
        raise _NotReadable("it has a control character or a non-ASCII character")
    # A quote that the pattern does not match remains, and the next check finds it.
    bare = QUOTED.sub("_", text)
    if "\\'" in text:
        # Shells of other families, such as fish, continue differently after this quoted text.
        raise _NotReadable("it has a backslash before a single quote")
    if "'" in bare or '"' in bare:
        raise _NotReadable("a quote is open, or there is an expansion in double quotes")
    if special := SPECIAL.search(bare):
        raise _NotReadable(f"it has an unquoted `{special.group()}`")
    for operator in OPERATOR.findall(bare):
        if operator not in OPERATORS:
            raise _NotReadable(f"it has the operator `{operator}`")
    if JOINED_REDIRECTION.search(bare):
        raise _NotReadable("it has a redirection without a space before it")


@cache
def _parser() -> Parser | None:
    # Loading the grammar takes tens of milliseconds, paid only when a command is judged.
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError:
        return None
    return Parser(Language(tree_sitter_bash.language()))


def _read_tree(text: str) -> ShellLine:
    parser = _parser()
    if parser is None:
        raise _NotReadable("tree-sitter-bash is not installed")
    root = parser.parse(text.encode("ascii")).root_node
    if root.has_error:
        raise _NotReadable("it is not a complete shell command")
    line = ShellLine()
    seen: list[str] = []
    todo: list[tuple[Node, bool]] = [(root, False)]
    while todo:
        node, tainted = todo.pop()
        if node.type in GROUPS:
            todo += [(child, tainted) for child in reversed(node.children)]
        elif node.type == "redirected_statement":
            redirections = [child for child in node.children if child.type == "file_redirect"]
            written = [_target(each) for each in redirections]
            line.writes += [target for target in written if target != "/dev/null"]
            tainted = tainted or written != ["/dev/null"] * len(written)
            if len(redirections) == len(node.children):
                line.commands.append(ShellCommand((":",), tainted=True))
            todo += [(child, tainted) for child in reversed(node.children)]
        elif node.type == "command":
            line.commands.append(ShellCommand(_words(node), tainted))
            seen.append(_text(node))
        elif node.type == "file_redirect" or node.type in OPERATORS or _text(node).isspace():
            seen.append(_text(node))
        else:
            raise _NotReadable(f"it has a shell construct: {node.type.replace('_', ' ')}")
    if _without_blanks("".join(seen)) != _without_blanks(text):
        raise _NotReadable("a part of it was not recognized")
    return line


def find_commands(text: str) -> list[tuple[str, ...]]:
    """Return the words of every command that appears in a line, in order.

    Only for recognising a program; decisions use `read_line`. A word that a shell would expand is
    left unchanged. Nothing is found in a line that is too long or not ASCII.
    """
    parser = _parser()
    if parser is None or len(text) > MAX_LINE_SIZE or not text.isascii():
        return []
    found: list[tuple[str, ...]] = []
    todo = [parser.parse(text.encode("ascii")).root_node]
    while todo:
        node = todo.pop()
        todo += reversed(node.children)
        if node.type == "command":
            words = [each for each in node.children if each.type != "variable_assignment"]
            found.append(tuple(_unquoted(word) for word in words))
    return found


def _unquoted(node: Node) -> str:
    if node.type in ("raw_string", "string"):
        return _text(node)[1:-1]
    return _text(node)


def _text(node: Node) -> str:
    return (node.text or b"").decode("ascii")


def _without_blanks(text: str) -> str:
    return re.sub(r"\s", "", text)


def _target(redirection: Node) -> str:
    """Return the file that a redirection writes to."""
    children = list(redirection.children)
    if children and children[0].type == "file_descriptor":
        children.pop(0)
    if len(children) != 2 or children[0].type not in (">", ">>"):
        raise _NotReadable("it has a redirection other than `> FILE` or `>> FILE`")
    return _word(children[1])[1]


def _words(command: Node) -> tuple[str, ...]:
    nodes = [
        child.children[0] if child.type == "command_name" and len(child.children) == 1 else child
        for child in command.children
    ]
    words = [_word(node) for node in nodes]
    source = _text(command)
    bare = QUOTED.sub("_", source)
    # The grammar has to split the command into exactly these words.
    if (
        OPERATOR.search(bare)
        or "\n" in bare
        or [plain for plain, _ in words] != shlex.split(source)
    ):
        raise _NotReadable("its words are ambiguous")
    name = words[0][1]
    if not COMMAND_NAME.fullmatch(name) or name in UNREADABLE_NAMES:
        raise _NotReadable(f"`{name.replace(UNKNOWN, '*')}` is not the plain name of a program")
    return tuple(word for _, word in words)


def _word(node: Node) -> tuple[str, str]:
    """Return a word without its quotes, and the same word with its globs replaced by `UNKNOWN`."""
    if node.type not in PLAIN:
        raise _NotReadable(f"it has a shell construct: {node.type.replace('_', ' ')}")
    if node.type == "concatenation":
        parts = [_word(child) for child in node.children]
        return "".join(part[0] for part in parts), "".join(part[1] for part in parts)
    text = _text(node)
    if node.type in ("raw_string", "string"):
        return text[1:-1], text[1:-1]
    return text, GLOBS.sub(UNKNOWN, text)

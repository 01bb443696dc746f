"""An agent's question as an act that a policy can judge.

Owns what is taken out of a tool call: the paths, the command, and what shows of its kind whatever
the agent calls it. Names of fields in a tool's input are the tools' own, so the usual ones are
known here and a path anywhere in the input counts. It decides nothing (`judging`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dragoman.client.codex.approvals import Approval
from dragoman.client.permissions import Question
from dragoman.hub.policy.rules import Act
from dragoman.hub.policy.shell import read_line

MAX_DEPTH: Final = 8
"""Tables inside of tables of a tool's input that are looked at."""

PATH_NAMES: Final = frozenset(
    """
    path paths file files filename filepath file_path file_paths absolute_path abs_path
    absolutepath dir_path dirpath directory dir folder target target_path target_file
    target_directory destination dest destination_path source source_path src old_path new_path
    from_path to_path notebook_path uri relative_path from to oldpath newpath outputpath output_path
    """.split()
)
LINE_NAMES: Final = frozenset(
    "command commands cmd cmds commandline command_line shell_command bash_command script".split()
)
ARGUMENT_NAMES: Final = frozenset({"args", "arguments", "argv"})
CWD_NAMES: Final = frozenset("cwd workdir working_directory workingdirectory working_dir".split())
WRITE_NAMES: Final = frozenset(
    """
    content contents new_string old_string new_str old_str newtext new_text text_to_write
    replacement patch diff edits insert_text file_text changes new_source
    """.split()
)
CODE_NAMES: Final = frozenset({"code", "javascript", "python", "expression"})
INPUT_NAMES: Final = frozenset({"stdin", "env", "environment"})
URL_NAMES: Final = frozenset({"url", "urls", "href"})


def act_of(
    question: Question, *, peer: str, role: str, workspace: str, titled: bool = False
) -> Act:
    """What a question is about. `titled`: whether a title is the command, where none came, which
    is known of a peer by its descriptor (`Quirks.command_titles`)."""
    found = _Found()
    call = question.tool_call
    if isinstance(call, Approval):
        # The app-server tells the command as the title; a reason of the model may stand there, too.
        if call.kind.value in ("execute", "read", "search"):
            if call.title == call.description or call.title == "Run a command":
                found.hidden = True
            else:
                found.lines.append(call.title)
    else:
        _of_call(call, found)
        if question.kind == "execute" and not found.runs:
            if titled and question.title.strip():
                found.lines.append(question.title)
            else:
                found.hidden = True
    if len(found.lines) > 1 and any(read_line(line).problem for line in found.lines):
        # Each may be run by itself: an open quote must not swallow the lines that follow.
        found.hidden = True
    return Act(
        kind=question.kind,
        evident=tuple(sorted(found.kinds)),
        paths=tuple(dict.fromkeys(found.paths)),
        argv=found.argv,
        line="\n".join(found.lines) if found.lines else None,
        hidden=found.hidden,
        tainted=found.tainted,
        cwd=found.cwd,
        title=question.title,
        peer=peer,
        role=role,
        workspace=workspace,
        fingerprint=_fingerprint(question),
    )


class _Found:
    def __init__(self) -> None:
        self.paths: list[str] = []
        self.lines: list[str] = []
        self.argv: tuple[str, ...] | None = None
        self.kinds: set[str] = set()
        self.hidden = False
        self.tainted = False
        self.cwd: str | None = None

    @property
    def runs(self) -> bool:
        return bool(self.lines) or self.argv is not None or self.hidden


def _of_call(call: Any, found: _Found) -> None:
    for location in _each(_part(call, "locations")):
        path = _part(location, "path")
        if isinstance(path, str):
            found.paths.append(path)
    for content in _each(_part(call, "content")):
        # A diff has a path beside its texts, in every dialect.
        path = _part(content, "path")
        if isinstance(path, str):
            found.paths.append(path)
            found.kinds.add("edit")
    _look(_part(call, "raw_input", "rawInput", "input"), found, MAX_DEPTH)


def _part(value: Any, *names: str) -> Any:
    for name in names:
        part = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if part is not None:
            return part
    return None


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _look(value: Any, found: _Found, depth: int) -> None:
    if isinstance(value, Mapping):
        if depth == 0:
            # Nobody nests so deep who wants to be read.
            found.hidden = True
            return
        # A list, because two spellings of one name must not hide one another.
        fields = [(_name(key), item) for key, item in value.items()]
        arguments = [item for name, item in fields if name in ARGUMENT_NAMES]
        for name, item in fields:
            _field(name, item, arguments, found)
            _look(item, found, depth - 1)
    elif isinstance(value, list | tuple):
        if depth == 0 and value:
            found.hidden = True
            return
        for item in value:
            _look(item, found, depth - 1)


def _name(key: object) -> str:
    text = str(key).replace("-", "_")
    # `filePath` and `file_path` are one name.
    return "".join(
        f"_{char}" if char.isupper() and at and text[at - 1].islower() else char
        for at, char in enumerate(text)
    ).lower()


def _field(name: str, item: Any, arguments: Sequence[Any], found: _Found) -> None:
    if name in LINE_NAMES:
        if len(arguments) > 1:
            found.hidden = True
        _command(name, item, arguments[0] if arguments else None, found)
    elif name in CWD_NAMES and isinstance(item, str):
        if found.cwd is not None and found.cwd != item:
            found.paths.append(item)
        found.cwd = item
    elif name in PATH_NAMES:
        found.paths += [each for each in (item, *_each(item)) if isinstance(each, str)]
    elif name in WRITE_NAMES and item not in (None, "", [], {}):
        found.kinds.add("edit")
    elif name in CODE_NAMES and isinstance(item, str):
        found.hidden = True
        found.kinds.add("execute")
    elif name in URL_NAMES and isinstance(item, str):
        found.kinds.add("fetch")
    elif name in INPUT_NAMES and item:
        found.tainted = True


def _command(name: str, item: Any, arguments: Any, found: _Found) -> None:
    if isinstance(item, str):
        if isinstance(arguments, list | tuple) and all(isinstance(a, str) for a in arguments):
            _words((item, *arguments), found)
        elif isinstance(arguments, str) and arguments:
            found.lines.append(f"{item} {arguments}")
        elif item.strip() and item not in found.lines:
            found.lines.append(item)
    elif isinstance(item, list | tuple) and item:
        if not all(isinstance(each, str) for each in item):
            found.hidden = True
        elif name in ("commands", "cmds"):
            found.lines += [each for each in item if each not in found.lines]
        else:
            _words(tuple(item), found)
    elif item:
        found.hidden = True


def _words(argv: tuple[str, ...], found: _Found) -> None:
    if found.argv is not None and found.argv != argv:
        found.hidden = True
    # A word with a NUL byte is none that a program can be given.
    if any("\0" in word for word in argv):
        found.hidden = True
    found.argv = argv


def _fingerprint(question: Question) -> str:
    call = question.tool_call
    parts = (question.kind, question.title, _part(call, "name"), _part(call, "raw_input"))
    try:
        data = msgspec.json.encode(parts, enc_hook=repr, order="deterministic")
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(data).hexdigest()

"""Determine what a tool call would do, from what the agent sends.

Extracts the paths, the command and the kinds that the input shows, whatever the agent calls them.
Field names differ between tools, so the usual ones are listed here, and a path anywhere in the
input counts. Nothing is decided here: presets are in `permissions`, rules in `dragoman.policy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

MAX_DEPTH: Final = 8
"""Maximum nesting depth that is searched in a tool's input."""

PATH_NAMES: Final = frozenset(
    """
    path paths file files filename filepath file_path file_paths absolute_path abs_path
    absolutepath dir_path dirpath directory dir folder target target_path target_file
    target_directory destination dest destination_path source source_path src old_path new_path
    from_path to_path notebook_path uri relative_path from to oldpath newpath outputpath output_path
    """.split()
)
TARGET_NAMES: Final = frozenset(
    """
    destination dest destination_path to to_path new_path newpath output_path outputpath
    """.split()
)
"""Fields that name what is created. No tool that only reads has one."""
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
SEARCH_NAMES: Final = frozenset(
    "pattern patterns query queries regex regexp glob globs search search_query search_term "
    "search_pattern keyword keywords symbol symbols".split()
)
READ_NAMES: Final = frozenset(
    """
    include includes exclude excludes ignore name type file_type language output_mode encoding
    format description title reason explanation justification purpose thought thoughts summary
    intent id call_id tool_call_id turn_id kind offset limit line lines start end start_line
    end_line view_range head_limit sort order
    """.split()
)
"""Further fields of tools that only read."""
FLAG_NAMES: Final = frozenset(
    """
    recursive depth max_depth case_sensitive case_insensitive ignore_case smart_case whole_word
    is_regex is_regexp literal fixed_strings multiline invert_match hidden include_hidden
    show_hidden no_ignore follow_symlinks respect_git_ignore respect_gemini_ignore
    respect_qwen_ignore respect_ignore use_default_excludes line_number line_numbers
    show_line_numbers numbered from_line to_line line_start line_end line_count num_lines
    start_line_one_indexed end_line_one_indexed_inclusive should_read_entire_file whole_file
    full length size page pages cell context context_lines before after before_context after_context
    count max_count max_results max_matches max_lines max_chars max_bytes max_length max_tokens
    max_output_length total_max_matches max_matches_per_file names_only dirs_only files_only
    include_line_numbers top_k n timeout timeout_ms explain _a _b _c _i _n _l _o _u
    """.split()
)
"""Fields of tools that only read, with number or boolean values."""
KNOWN_NAMES: Final = (
    PATH_NAMES
    | LINE_NAMES
    | CWD_NAMES
    | WRITE_NAMES
    | CODE_NAMES
    | URL_NAMES
    | SEARCH_NAMES
    | READ_NAMES
)
"""Fields that are understood here. `ARGUMENT_NAMES` are not among them: arguments have a meaning
only together with a command."""


class ToolInput:
    """What a tool call would do, as far as its fields show it."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.lines: list[str] = []
        """Commands given as shell lines."""
        self.argv: tuple[str, ...] | None = None
        """The command as a list of arguments."""
        self.kinds: set[str] = set()
        """Kinds that the input shows, whatever the agent claims."""
        self.hidden = False
        """Whether the call runs, or may run, something that its fields do not show."""
        self.tainted = False
        """Whether the command has its own environment or input."""
        self.cwd: str | None = None
        self.unknown = False
        """Whether the call has input that is not understood."""
        self.written: list[str] = []
        """Texts that the call would write or replace, as given in its input."""
        self.makes = False
        """Whether the call names a file that it creates from another one, such as the target of a
        copy."""
        self.searches = False
        """Whether the call has a search pattern."""

    @property
    def runs(self) -> bool:
        """Whether the call runs a command, shown or not."""
        return bool(self.lines) or self.argv is not None or self.hidden

    def shows_reading(self, kind: str) -> bool:
        """Return whether a call that claims to be of this kind, which only reads, shows what it
        reads, and nothing that is not reading.

        A call of the kind ``think`` need not show a file. Commands are ignored here: the callers
        judge them by what they run.
        """
        if self.unknown or self.makes or self.kinds:
            return False
        return bool(self.paths) or self.searches or kind == "think"

    def is_shown_by(self, texts: Sequence[str]) -> bool:
        """Return whether the call's command, its paths and these texts of changed files show all of
        its input. Otherwise a question has to show the input as it was received."""
        if self.unknown or self.makes or self.hidden or self.kinds - {"edit"}:
            return False
        if not self.kinds:
            return True
        return bool(texts) and all(any(each in text for text in texts) for each in self.written)


def told_of(call: Any) -> ToolInput:
    """Return what a tool call says it would do, in any dialect."""
    told = ToolInput()
    for location in _each(part(call, "locations")):
        path = part(location, "path")
        if isinstance(path, str):
            _paths([path], told)
    for content in _each(part(call, "content")):
        # A diff has a path next to its texts, in every dialect.
        path = part(content, "path")
        if isinstance(path, str):
            _paths([path], told)
        if isinstance(path, str) or part(content, "type") == "diff":
            told.kinds.add("edit")
        if part(content, "terminal_id", "terminalId") is not None:
            told.kinds.add("execute")
    _look(part(call, "raw_input", "rawInput", "input"), "", told, MAX_DEPTH)
    return told


def part(value: Any, *names: str) -> Any:
    """Return the value of the first of these names that a struct or dict has, or None."""
    for name in names:
        part = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if part is not None:
            return part
    return None


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _look(value: Any, name: str, told: ToolInput, depth: int) -> None:
    if isinstance(value, Mapping):
        if depth == 0:
            # No honest input is nested this deep.
            told.hidden = True
            return
        # A list, because two spellings of one name must not hide each other.
        fields = [(_name(key), item) for key, item in value.items()]
        arguments = [item for name, item in fields if name in ARGUMENT_NAMES]
        for name, item in fields:
            if " " in name or "\n" in name:
                # A key with spaces or line breaks is content, not the name of a field.
                told.unknown = True
            _field(name, item, arguments, told)
            _look(item, name, told, depth - 1)
    elif isinstance(value, list | tuple):
        if depth == 0 and value:
            told.hidden = True
            return
        for item in value:
            _look(item, name, told, depth - 1)
    elif isinstance(value, str) and value.strip():
        if name in WRITE_NAMES:
            told.written.append(value)
        elif name not in KNOWN_NAMES:
            told.unknown = True
    elif isinstance(value, bool | int | float) and name not in KNOWN_NAMES | FLAG_NAMES:
        told.unknown = True


def _name(key: object) -> str:
    text = str(key).replace("-", "_")
    # `filePath` and `file_path` are the same name.
    return "".join(
        f"_{char}" if char.isupper() and at and text[at - 1].islower() else char
        for at, char in enumerate(text)
    ).lower()


def _field(name: str, item: Any, arguments: Sequence[Any], told: ToolInput) -> None:
    if name in LINE_NAMES:
        if len(arguments) > 1:
            told.hidden = True
        _command(name, item, arguments[0] if arguments else None, told)
    elif name in CWD_NAMES and isinstance(item, str):
        if told.cwd is not None and told.cwd != item:
            told.paths.append(item)
        told.cwd = item
    elif name in PATH_NAMES:
        _paths([each for each in (item, *_each(item)) if isinstance(each, str)], told)
        told.makes = told.makes or (name in TARGET_NAMES and isinstance(item, str) and bool(item))
    elif name in WRITE_NAMES and item not in (None, [], {}):
        # An empty text clears a file.
        told.kinds.add("edit")
    elif name in CODE_NAMES and isinstance(item, str):
        told.hidden = True
        told.kinds.add("execute")
    elif name in URL_NAMES and isinstance(item, str):
        told.kinds.add("fetch")
    elif name in INPUT_NAMES and item:
        told.tainted = True
    elif name in SEARCH_NAMES and item:
        told.searches = True


def _paths(paths: Sequence[str], told: ToolInput) -> None:
    told.paths += paths
    if any("://" in each and not each.lower().startswith("file:") for each in paths):
        told.kinds.add("fetch")


def _command(name: str, item: Any, arguments: Any, told: ToolInput) -> None:
    if isinstance(item, str):
        if isinstance(arguments, list | tuple) and all(isinstance(a, str) for a in arguments):
            _words((item, *arguments), told)
        elif isinstance(arguments, str) and arguments:
            told.lines.append(f"{item} {arguments}")
        elif item.strip() and item not in told.lines:
            told.lines.append(item)
    elif isinstance(item, list | tuple) and item:
        if not all(isinstance(each, str) for each in item):
            told.hidden = True
        elif name in ("commands", "cmds"):
            told.lines += [each for each in item if each not in told.lines]
        else:
            _words(tuple(item), told)
    elif item:
        told.hidden = True


def _words(argv: tuple[str, ...], told: ToolInput) -> None:
    if told.argv is not None and told.argv != argv:
        told.hidden = True
    # A word with a NUL byte cannot be passed to a program.
    if any("\0" in word for word in argv):
        told.hidden = True
    told.argv = argv

"""Slash commands of `dragoman chat`: their names, parsing, completion and pages.

`cli.chat_session` and `cli.host_chat` execute them. The agent's own commands are sent to it as
prompts. A line that looks like a command but is not one is an error; ``//`` starts a prompt with a
slash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dragoman.cli.output.escape import one_line
from dragoman.cli.output.tables import aligned, fit, folded
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.errors import DragomanError, PolicyNotEnforced, UsageError
from dragoman.errors.usage import nearest
from dragoman.events.parts import SlashCommand, Usage

if TYPE_CHECKING:
    from dragoman.cli.output.renderer import Renderer

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "help": ("", "show this list"),
    "model": ("[NAME]", "show the models, or switch to one"),
    "mode": ("[NAME]", "show the modes, or switch to one"),
    "peer": ("[NAME]", "show the peers, or continue with another one, which gets a summary"),
    "new": ("[NAME]", "start a new session; a named one stays open"),
    "sessions": ("[NAME]", "list the sessions of this project, or continue one"),
    "cost": ("", "show the tokens and cost of this chat"),
    "quit": ("", "leave"),
}
"""Our commands: the argument of each and its description."""

OTHER_NAMES: Final = {"exit": "quit", "models": "model", "modes": "mode", "peers": "peer"}
"""Aliases for our commands, known from other programs."""

KEYS: Final = (
    ("  Enter", "send the prompt"),
    ("  Alt-Enter, Ctrl-J", "start a new line; several pasted lines are one prompt"),
    ("  Up, Ctrl-R", "earlier prompts and search; a prompt with a leading space is not kept"),
    ("  Tab", "complete commands, names and @files"),
    ("  Ctrl-C", "cancel the running turn; clear the prompt; twice: leave"),
    ("  Ctrl-D", "leave"),
)

TAKES_NO_NAME: Final = frozenset({"help", "cost", "quit"})

_COMMAND: Final = re.compile(r"/([A-Za-z][\w.:-]*)(?:\s+(.*))?\Z", re.DOTALL)
"""Matches a command and its argument, but not a path such as ``/usr/bin``."""

_MENTION: Final = re.compile(r"""(?<![\w@./\\`])@(?:"([^"\n]*)|([\w./~+=,:-]*))\Z""")
"""A file mention that is being typed; `read_input.MENTION` matches a complete one."""

_PLAIN: Final = re.compile(r"[\w./~+=,:-]+")
"""A path that can be mentioned without quotes."""

MAX_FILES: Final = 200
"""Maximum number of file names offered as completions."""


class OwnCommand(NamedTuple):
    """One of our commands, by its own name even if an alias was typed, and its argument, which may
    be empty."""

    name: str
    argument: str


def meaning_of(line: str, offered: Iterable[str]) -> OwnCommand | str:
    """Parse a line into one of our commands or, as text, a prompt for the agent.

    `offered` are the names of the agent's commands. Raises `UsageError` for an unknown command or
    an unexpected argument.
    """
    text = line.strip()
    if text.startswith("//"):
        return text[1:]
    found = _COMMAND.match(text)
    if found is None:
        return line
    name, argument = found[1], (found[2] or "").strip()
    if name in COMMANDS:
        if argument and name in TAKES_NO_NAME:
            raise UsageError(f"/{name} takes no argument; //{name} sends it to the agent")
        return OwnCommand(name, argument)
    names = list(offered)
    if name in names:
        return line
    if name in OTHER_NAMES:
        return OwnCommand(OTHER_NAMES[name], argument)
    near = " or ".join(f"/{each}" for each in nearest(name, [*COMMANDS, *names]))
    advice = f"did you mean {near}?" if near else "/help lists the commands."
    raise UsageError(f"unknown command /{name}; {advice} //{name} sends it as text")


def piped_meaning(line: str) -> OwnCommand | str:
    """Parse a line of a chat without a terminal. Only /help, /quit and /exit are commands there;
    every other line is a prompt."""
    match line.strip():
        case "/help":
            return OwnCommand("help", "")
        case "/quit" | "/exit":
            return OwnCommand("quit", "")
        case _:
            return line


def help_page(
    theirs: Sequence[SlashCommand],
    *,
    keys: bool,
    width: int = 0,
    ours: Collection[str] = COMMANDS.keys(),
) -> str:
    """Return the help page: the commands in `ours`, the agent's commands (`theirs`) and, with
    `keys`, the keys of the line editor.

    `width` is the number of columns; 0 means no limit.
    """
    rows = [
        (f"  /{name} {hint}".rstrip(), about)
        for name, (hint, about) in COMMANDS.items()
        if name in ours
    ]
    for command in theirs:
        hint = f" {one_line(command.hint)}" if command.hint else ""
        slash = "//" if command.name in COMMANDS else "/"
        rows.append((f"  {slash}{one_line(command.name)}{hint}", one_line(command.description)))
    rows.append(("  //TEXT", "send /TEXT to the agent as text"))
    if keys:
        rows += KEYS
    widths = fit(rows, width)
    return "\n".join(line for row in rows for line in folded(row, widths)) + "\n"


# -- completion


class Suggestion(NamedTuple):
    """A completion: `text` replaces the last `replaces` characters before the cursor, and `about`
    describes it."""

    text: str
    replaces: int
    about: str = ""


def suggestions(
    text: str,
    *,
    theirs: Sequence[SlashCommand],
    names: Callable[[str], Iterable[tuple[str, str]]],
    workspace: Path,
) -> Iterator[Suggestion]:
    """Yield the completions for the text before the cursor.

    `theirs` are the agent's commands. `names` returns the names, with descriptions, that can follow
    the one of our commands that it is called with.
    """
    mention = _MENTION.search(text)
    if mention is not None:
        yield from _files(mention, workspace)
        return
    if not text.startswith("/") or text.startswith("//"):
        return
    word, space, argument = text[1:].partition(" ")
    if not space:
        yield from _commands(word, theirs)
    elif word in COMMANDS and "\n" not in argument:
        for name, about in names(word):
            if _can_be_typed(name) and name.startswith(argument):
                yield Suggestion(name, len(argument), about)


def _commands(word: str, theirs: Sequence[SlashCommand]) -> Iterator[Suggestion]:
    ours = {name: about for name, (_, about) in COMMANDS.items()}
    known = {**{each.name: each.description for each in theirs}, **ours}
    for name, about in known.items():
        if name.startswith(word) and _can_be_typed(name):
            yield Suggestion(f"/{name}", len(word) + 1, about)


def _can_be_typed(name: str) -> bool:
    """Return whether a name, which may come from an agent, can be typed on one line as it is."""
    return bool(name) and name.isprintable() and not any(map(str.isspace, name))


def _files(mention: re.Match[str], workspace: Path) -> Iterator[Suggestion]:
    typed = mention[1] if mention[1] is not None else mention[2]
    folder, _, beginning = typed.rpartition("/")
    root = workspace.resolve()
    try:
        place = (root / Path(folder or ("/" if typed.startswith("/") else "."))).resolve()
        if not place.is_relative_to(root):
            return
        with os.scandir(place) as entries:
            found = sorted(
                (entry.name, entry.is_dir())
                for entry in entries
                if entry.name.startswith(beginning)
                and (beginning or not entry.name.startswith("."))
                and entry.name.isprintable()
                and '"' not in entry.name
            )
    except (OSError, ValueError):
        return
    replaces = len(mention[0])
    for name, is_folder in found[:MAX_FILES]:
        path = f"{folder}/{name}" if folder else name
        # A directory ends with a slash, so that its contents can be completed next.
        end = "/" if is_folder else ""
        if _PLAIN.fullmatch(path):
            yield Suggestion(f"@{path}{end}", replaces)
        else:
            quote = "" if is_folder else '"'
            yield Suggestion(f'@"{path}{end}{quote}', replaces)


# -- pages


def choice_page(
    what: str, choices: Sequence[tuple[str, str]], current: str | None, *, more: str = ""
) -> str:
    """Return a page of the values that a command can choose from, with the current one marked,
    followed by `more`. `what` is the word for one value, such as ``model``; if there are no values,
    the page says that the agent does not report them."""
    rows: list[tuple[str, str]] = [
        (f"{'*' if value == current else ' '} {one_line(value)}", one_line(about))
        for value, about in choices
    ]
    if current is not None and all(value != current for value, _ in choices):
        rows.insert(0, (f"* {one_line(current)}", ""))
    if not rows:
        return f"the agent does not report its {what}s\n"
    return "\n".join(aligned(rows)) + f"\n{more}"


def cost_page(used: Sequence[Usage | None]) -> str:
    """Return a page with the number of turns, their known tokens and cost, and the number of turns
    whose cost is unknown. `used` has the usage of each turn, None if it is unknown."""
    from dragoman.cli.output.renderer import money, tokens

    if not used:
        return "no turns yet\n"
    told = [usage for usage in used if usage is not None]
    parts = [f"{len(used)} turn{'s' if len(used) > 1 else ''}"]
    counted = [usage for usage in told if tokens(usage)]
    if counted:
        parts.append(
            tokens(
                Usage(
                    input_tokens=_sum(usage.input_tokens for usage in counted),
                    output_tokens=_sum(usage.output_tokens for usage in counted),
                    total_tokens=_sum(usage.total_tokens for usage in counted),
                )
            )
        )
    costs: dict[str | None, float] = {}
    for usage in told:
        if usage.cost is not None:
            costs[usage.cost.unit] = costs.get(usage.cost.unit, 0.0) + usage.cost.amount
    parts += [money(amount, unit) for unit, amount in costs.items()]
    unknown = sum(usage is None or usage.cost is None for usage in used)
    if unknown:
        parts.append(f"cost of {'all' if unknown == len(used) else unknown} unknown")
    return ", ".join(parts) + "\n"


def show_page(page: str, show: Renderer, *, interactive: bool) -> None:
    """Show a page on stderr if the chat is `interactive`, otherwise on stdout. In JSON output it is
    a notice."""
    from dragoman.cli.output.jsonl import JsonLines

    if isinstance(show, JsonLines):
        show.notice(page)
    elif interactive:
        put_err(page)
    else:
        put_out(page)


def show_refusal(error: DragomanError, show: Renderer, *, interactive: bool) -> None:
    """Show why a line was rejected. In an interactive chat, a usage error is shown as a notice,
    without advice about the command line."""
    from dragoman.cli.output.jsonl import JsonLines

    short = isinstance(error, UsageError) and not isinstance(error, PolicyNotEnforced)
    if short and interactive and not isinstance(show, JsonLines):
        # The message says what to do; advice about the command line does not apply in a chat.
        show.notice(str(error))
    else:
        show.failed(error)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None

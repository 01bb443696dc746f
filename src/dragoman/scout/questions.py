"""Parse a question or a slash command into an intent.

A question is read as a bag of words, not as a sentence: a few words such as "defined", "used",
"TODO" or "entry points" choose an intent if it says hardly anything else. Every other question is
an intent too: search for its words (`BestPlaces`). Pure: `answers` finds the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.scout import languages
from dragoman.scout.terms import STOP_WORDS

MAX_QUESTION_SIZE: Final = 400
"""Maximum length of a question, in characters. A longer text is a task for a model."""

WORK: Final = "This asks me to change something or to run it, and I only read."
TOO_LONG: Final = f"It has more than {MAX_QUESTION_SIZE} characters."
HISTORY: Final = "Changes are in the git history, which I do not read."

TAGS: Final = ("TODO", "FIXME", "XXX", "HACK", "BUG")
"""The marks that count as open tasks."""


class BestPlaces(Struct, frozen=True):
    """The best places for the words of a question."""

    text: str
    why_not: str = ""
    """Why places help but are not an answer: the question is too long, or asks for work or for the
    history."""


class Definition(Struct, frozen=True):
    """Where a name is defined."""

    symbol: str
    question: str = ""
    """The whole question, to search for if `symbol` turns out to be an ordinary word; empty if
    `symbol` is clearly a name."""


class Uses(Struct, frozen=True):
    """Where a name is used, without its definition."""

    symbol: str
    calls: bool = False


class FindText(Struct, frozen=True):
    """Lines with exactly this text."""

    text: str


class ReadPath(Struct, frozen=True):
    """A file, some lines of it, or a directory."""

    path: str
    first: int | None = None
    last: int | None = None


class Layout(Struct, frozen=True):
    """The contents: directories, languages, entry points, tests; or only the entry points."""

    path: str = ""
    entry_points: bool = False


class Todos(Struct, frozen=True):
    """TODO and similar marks."""

    tags: tuple[str, ...] = TAGS
    words: str = ""
    path: str = ""


class Help(Struct, frozen=True):
    """What scout can do."""


class Save(Struct, frozen=True):
    """Write the last answer to a file."""

    path: str


Intent: TypeAlias = (
    BestPlaces | Definition | Uses | FindText | ReadPath | Layout | Todos | Help | Save
)


class QuestionKind(NamedTuple):
    """A kind of question, for the help text and the documentation."""

    intent: type
    asks: str
    examples: tuple[str, ...]


QUESTIONS: Final = (
    QuestionKind(BestPlaces, "anything else: the best matches",
                 ("where is the line framing implemented?", "how are retries limited?")),
    QuestionKind(Definition, "where a name is defined",
                 ("where is the class Session defined?", "what is parse_range?")),
    QuestionKind(Uses, "where a name is used or called",
                 ("where is Session used?", "who calls parse_range?")),
    QuestionKind(Todos, "TODO, FIXME and similar comments",
                 ("list the TODOs", "show FIXMEs in src about retries")),
    QuestionKind(Layout, "the layout, the languages, the entry points, the tests",
                 ("what are the entry points?", "summarise the layout", "where are the tests?")),
    QuestionKind(ReadPath, "a file or a directory",
                 ("read src/app.py:10-20", "show me the README", "what is in src/?")),
    QuestionKind(FindText, "lines that contain an exact text", ('find the text "not found"',)),
    QuestionKind(Help, "what scout can do", ("what can you do?",)),
)  # fmt: skip


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_USED: Final = _set("use used uses usage references referenced mentions mentioned imports imported")
_CALLED: Final = _set("call calls called caller callers invokes invoked")
_ABOUT_NAMES: Final = _set(
    "class code constant declared declares definition define defined defines enum file find "
    "function implementation implemented implements interface locate means method module name "
    "named set struct type variable written"
)
_LAYOUT: Final = _set(
    "architecture big describe explain languages language large layout many organised organized "
    "overview structure structured summarise summarize summary test tests"
)
_PROJECT: Final = _set("code codebase program programs project repo repository workspace")
_START: Final = _set("entry entrypoint entrypoints launch main point points run start")
_LISTED: Final = _set("contents directory dir files folder list ls tree")
_READ: Final = _set("cat display open print read view")
_TASKS: Final = _set(
    "add build change commit convert create debug delete draft fix generate implement improve "
    "install make migrate move optimise optimize push refactor remove rename replace review "
    "rewrite run test translate update upgrade write"
)
_POLITE: Final = _set("can could hello hey hi i let me need now please scout to us want would you")
_HELP: Final = re.compile(
    r"help|usage|commands|what (?:can|could|do) (?:you|i) (?:do|ask|answer|know)\b.*"
    r"|(?:who|what) are you"
)
_HISTORY: Final = re.compile(
    r"(?i)(?:what|who|when|which files)(?: has| have| was| were)?(?: last| recently)? changed\b"
    r"|.*\b(?:last|latest|recent) (?:\d+ )?(?:commits?|changes)\b"
)
_WORD: Final = re.compile(r"[^\s,;?!()`'\"“”‘’]+")
_QUOTED: Final = re.compile(r"`([^`]+)`|\"([^\"]+)\"|(?<!\w)'([^']+)'(?!\w)|“([^”]+)”")
_QUOTES: Final = "`'\"“”‘’ "
_NAME: Final = re.compile(r"[\w$@~](?:[\w$.:#~-]*[\w$~])?[?!]?")
_CODE: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}|[A-Z][a-z0-9]+$|[_.:#$(]|\d")
_RANGE: Final = re.compile(
    r"(?P<path>.+?)(?::|#L| +(?=\d))(?P<first>\d{1,9})(?:(?:-|:|,|\.\.|-L)(?P<last>\d{1,9}))?$"
)
_PRONOUNS: Final = ("it", "that", "this")


def is_pronoun(word: str) -> bool:
    """Return whether a word refers to the previous subject."""
    return word.lower() in _PRONOUNS


def looks_like_path(word: str) -> bool:
    """Return whether a word names a file or a directory rather than something inside one."""
    known = languages.of_path(_RANGE.sub(r"\g<path>", word)) is not languages.OTHER
    usual = word.lower() in ("readme", "license", "changelog", ".gitignore", "..")
    # `os.path.join` and `Session.go` look like file names too; only real file endings count.
    return "/" in word or "*" in word or usual or (known and word.count(".") <= 2)


def understand(text: str, mentions: Sequence[str] = ()) -> Intent:
    """Return the intent of a question. `mentions` are the files attached to it."""
    text = " ".join(text.split())
    if len(text) > MAX_QUESTION_SIZE:
        return BestPlaces(text[:MAX_QUESTION_SIZE], TOO_LONG)
    spoken = [word.rstrip(".,:") or word for word in _WORD.findall(text)]
    said = [word.lower() for word in spoken]
    content = [word for word in spoken if word.lower() not in STOP_WORDS]
    first = next((word for word in said if word not in _POLITE), "")
    if mentions and len(content) <= 2:
        return ReadPath(mentions[0])
    if _HELP.fullmatch(" ".join(said)):
        return Help()
    found = (
        _asks_text(text, said)
        or _asks_todos(spoken)
        or _asks_layout(content, said)
        or _asks_path(content, said)
    )
    if found is None and (first in _TASKS or _HISTORY.match(text)):
        return BestPlaces(text, WORK if first in _TASKS else HISTORY)
    return found or _asks_name(text, content, said) or BestPlaces(text)


def _left(content: Sequence[str], *known: frozenset[str]) -> list[str]:
    """Return the words that are not among the known ones."""
    return [word for word in content if not any(word.lower() in each for each in known)]


def _asks_text(text: str, said: Sequence[str]) -> Intent | None:
    found = _QUOTED.search(text)
    quoted = next((part for part in found.groups() if part), "") if found else ""
    if quoted and (
        " " in quoted or _set("text string phrase words message grep").intersection(said)
    ):
        return FindText(quoted)
    grep = re.match(r"(?i)(?:please )?grep(?: for)? +(.+)", text)
    return FindText(grep[1]) if grep else None


def _asks_todos(spoken: Sequence[str]) -> Intent | None:
    tags = [word.upper().replace("-", "").removesuffix("S") for word in spoken]
    tag = next((tag for tag in tags if tag in TAGS[:4]), None)
    if tag is None:
        return None
    about = spoken.index("about") if "about" in spoken else len(spoken)
    fillers = STOP_WORDS - {"in", "about"} | _set("list find open left remaining comments notes")
    rest = [
        word
        for at, word in enumerate(spoken)
        if tags[at] != tag and (at > about or word.lower() not in fillers)
    ]
    todos = of_todo(" ".join(rest))
    if todos.words and about == len(spoken):
        return None  # The question is about code that deals with such marks.
    return replace(todos, tags=TAGS if tag == "TODO" else (tag,))


def _asks_layout(content: Sequence[str], said: Sequence[str]) -> Intent | None:
    begins = any(word.startswith("entry") for word in said) or (
        said[:1] == ["how"] and {"run", "start", "launch"}.intersection(said)
    )
    if begins and not _left(content, _START, _PROJECT, _set("find list")):
        return Layout(entry_points=True)
    about = _LAYOUT.intersection(said) or (said[:1] == ["what"] and _PROJECT.intersection(said))
    if about and not _left(content, _LAYOUT, _PROJECT, _USED, _set("list files lines")):
        return Layout()
    return None


def _asks_path(content: Sequence[str], said: Sequence[str]) -> Intent | None:
    words = frozenset(said)
    if words & (_USED | _CALLED | _set("where which find locate")):
        return None
    rest = _left(content, _READ, _LISTED, _set("file line lines"))
    if not rest:
        if words & _READ and "it" in words:
            return ReadPath("it")
        return Layout() if words & _LISTED else None
    read = words & (_READ | _LISTED) or said[:3] == ["what", "is", "in"]
    return of_read(rest[0]) if len(rest) == 1 and (read or looks_like_path(rest[0])) else None


def _asks_name(text: str, content: Sequence[str], said: Sequence[str]) -> Intent | None:
    rest = _left(content, _ABOUT_NAMES, _USED, _CALLED, _set("list"))
    if not rest and len(content) > 0:
        rest = [word for word in said if is_pronoun(word)][:1]
    name = _name(rest[0]) if len(rest) == 1 and not looks_like_path(rest[0]) else ""
    if not name:
        return None
    if (_CALLED | _USED).intersection(said):
        return Uses(name, calls=bool(_CALLED.intersection(said)))
    is_code = _CODE.search(name) or f"`{name}" in text
    return Definition(name, "" if is_code else text)


# -- the input of commands


def _name(words: str) -> str:
    """Return the one name in some words, or an empty string if they are not a name."""
    name = words.strip(_QUOTES).removesuffix("()").rstrip(".,;:")
    return name if _NAME.fullmatch(name) and len(name) <= 200 else ""


def of_command(name: str, words: str) -> Intent | None:
    """Return the intent of the command `name` with the input `words`; None if the input is
    invalid."""
    plain = words.strip(_QUOTES)
    symbol = _name(words)
    made: dict[str, Intent | None] = {
        "find": Definition(symbol) if symbol else None,
        "uses": Uses(symbol) if symbol else None,
        "calls": Uses(symbol, calls=True) if symbol else None,
        "search": BestPlaces(words) if plain else None,
        "text": FindText(plain) if plain else None,
        "read": of_read(words) if plain else None,
        "save": Save(plain) if plain else None,
        "layout": Layout(plain),
        "todo": of_todo(words),
        "help": Help(),
    }
    return made[name]


def of_read(words: str) -> ReadPath:
    """Parse a path and the lines named after it: ``a.py:10-20``, ``a.py#L10``, ``a.py 10``."""
    path = words.strip(_QUOTES)
    found = _RANGE.fullmatch(path)
    if found is None:
        return ReadPath(path)
    last = int(found["last"]) if found["last"] else None
    return ReadPath(found["path"].strip(_QUOTES), int(found["first"]), last)


def of_todo(words: str) -> Todos:
    """Parse the input of ``/todo``: the marks to list, the directory, and the text that lines must
    contain."""
    found = re.search(r"(?:^|\s)in (\S+)", words)
    rest = (words.replace(found[0], "", 1) if found else words).split()
    tags = tuple(word for word in rest if word in TAGS)
    others = " ".join(word for word in rest if word not in TAGS)
    return Todos(tags or TAGS, others.removeprefix("about "), found[1] if found else "")

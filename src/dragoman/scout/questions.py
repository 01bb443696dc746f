"""Questions in plain English, and what each of them asks for.

Owns the table: patterns, what they mean, and the examples that the documentation shows and the
tests ask. A question is matched as a whole; one that fits no row is not answered, because half an
understanding would give an answer to something else. It is pure: nothing is looked up here.

Patterns are regular expressions in a shorthand: every group is one that captures nothing, and a
word in angle brackets stands for a part that many of them share.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dragoman.scout import languages, phrases
from dragoman.scout.intents import (
    TAGS,
    Callers,
    CountFiles,
    Definition,
    EntryPoints,
    FindFiles,
    FindText,
    Folder,
    Help,
    Intent,
    Layout,
    ReadFile,
    Readme,
    RecentChanges,
    Tests,
    Todos,
    Uses,
)

Made: TypeAlias = Intent | None
Match: TypeAlias = re.Match[str]

SHORTHAND: Final = {
    "<in>": "( (in|under|inside|below|within|of) <the>(<folder> )?<path>( <folder>)?)?",
    "<by>": r"( by (?P<author>[\w .@`'\"-]+))?",
    "<since>": r"( since (?P<since>[\w :.+-]+)"
    r"| (in|over|during|within) the (last|past) (?P<span>(\d+ )?\w+)"
    r"| (?P<day>today|yesterday|this (week|month|year)))?",
    "<lately>": "( (lately|recently|here|in git|in the history|in <the><repo>))*",
    "<show>": "(show|find|list|locate|get|give|print|display|see|look up|what('s| is| are))",
    "<read>": "(show|read|cat|open|view|print|display|see)( me)?",
    "<it>": "(it|this|that|<the><repo>|<the>program)",
    "<folder>": "(folder|directory|dir)",
    "<repo>": "(repo|repository|project|code ?base|code|workspace|source( code)?)",
    "<the>": "((the|this|our|all|any|every|some|its|of) )*",
    "<is>": "('s| is| are| was| were)",
    "<name>": phrases.SYMBOL,
    "<path>": phrases.PATH,
    "<quoted>": phrases.QUOTED,
}
"""What the angle brackets stand for. A part may use those below it."""


@dataclass(frozen=True, slots=True)
class QuestionPattern:
    """One row: what is asked, how it may be put, and what it then means."""

    asks: str
    examples: tuple[str, ...]
    hints: str
    """Beginnings of words, one of which is in every such question: most rows are passed over by
    them, and their patterns, which take milliseconds to compile, are never needed."""
    patterns: tuple[str, ...]
    make: Callable[[Match], Made]


def _about(kind: Callable[[str], Intent]) -> Callable[[Match], Made]:
    def make(match: Match) -> Made:
        name = phrases.symbol(match["symbol"])
        return None if name is None else kind(name)

    return make


def _definition(match: Match) -> Made:
    name = phrases.symbol(match["symbol"])
    if name is None:
        return None
    return FindFiles(name) if phrases.looks_like_path(name) else Definition(name)


def _what_is(match: Match) -> Made:
    """`what is X` is about a name only where X can be nothing else."""
    marked = "`" in match[0] or "()" in match[0]
    return _definition(match) if marked or phrases.looks_like_code(match["symbol"]) else None


def _text(match: Match) -> Made:
    return FindText(phrases.quoted(match) or match.groupdict().get("rest") or "")


def _files(match: Match) -> Made:
    path = match["path"]
    plain = "file" in match[0].lower() or phrases.looks_like_path(path)
    return FindFiles(path) if plain else None


def _language_files(match: Match) -> Made:
    known = languages.named(match["language"])
    return None if known is None else FindFiles(language=known.name)


def _folder(match: Match) -> Made:
    path = match.groupdict().get("path") or ""
    if path.lower() in ("this", "it", "here", "the"):
        path = ""
    if path and "/" not in path and phrases.looks_like_path(path):
        return ReadFile(*phrases.line_range(path))
    return Folder(path)


def _todos(match: Match) -> Made:
    written = match["tag"].replace("-", "").upper().removesuffix("S")
    tags = TAGS if written == "TODO" else (written,)
    return Todos(tags, (match["words"] or "").strip("`'\""), match["path"] or "")


_DAYS: Final = {
    "today": "midnight",
    "yesterday": "yesterday",
    "this week": "1 week ago",
    "this month": "1 month ago",
    "this year": "1 year ago",
}


def _changes(match: Match) -> Made:
    found = match.groupdict()
    since = f"{found['span']} ago" if found.get("span") else found.get("since") or ""
    since = since or _DAYS.get((found.get("day") or "").lower(), "")
    if re.fullmatch(r"\w+ ago", since):
        since = f"1 {since}"
    return RecentChanges(
        int(found["count"]) if found.get("count") else None,
        since.strip(),
        (found.get("author") or "").strip("`'\" "),
        found.get("path") or "",
    )


def _read(match: Match) -> Made:
    path, first, last = phrases.line_range(match["path"])
    found = match.groupdict()
    if found.get("first"):
        first = int(found["first"])
        last = int(found["last"]) if found.get("last") else first
    elif found.get("top"):
        first, last = 1, int(found["top"])
    elif found.get("end"):
        first, last = -int(found["end"]), None
    return ReadFile(path, first, last)


def _only_a_path(match: Match) -> Made:
    """`show X` may mean anything; it is about a file if X can be nothing else."""
    path = phrases.line_range(match["path"])[0]
    if path.endswith("/"):
        return Folder(path)
    return _read(match) if phrases.looks_like_path(path) else None


def _count(match: Match) -> Made:
    found = match.groupdict()
    word = (found.get("language") or "").strip().lower()
    known = languages.named(word)
    if word and known is None and word not in ("code", "source", "source code", "text"):
        return None
    return CountFiles(found.get("path") or "", known.name if known else "")


def _tests(match: Match) -> Made:
    return Tests(phrases.symbol(match.groupdict().get("symbol")) or "")


QUESTIONS: Final = (
    QuestionPattern(
        "what scout can do",
        ("help", "what can you do?"),
        "help commands usage you i",
        (
            "help|commands|usage",
            "what (can|do|could) (you|i) (do|answer|ask|know)( you)?( here)?",
            "(who|what) are you",
        ),
        lambda match: Help(),
    ),
    QuestionPattern(
        "the README",
        ("show me the README", "what does the readme say?"),
        "read",
        (
            "((<show>|<read>) )?<the>read ?me(.md)?( file)?",
            "what does the read ?me say",
        ),
        lambda match: Readme(),
    ),
    QuestionPattern(
        "where its programs begin",
        ("what are the entry points?", "how do I run this project?"),
        "entry main how where",
        (
            "(where<is> |which are |<show> )?<the>entry ?-?points?( here)?",
            "(where<is> |which is |<show> )?<the>main (function|file|module|program|script)s?",
            "how (do|can) (i|you|we|one) (run|start|launch|execute) <it>",
            "where does <it> (start|begin)",
        ),
        lambda match: EntryPoints(),
    ),
    QuestionPattern(
        "the tests, or those about a name",
        ("where are the tests?", "which tests are there for parse_range?"),
        "test",
        (
            "(where<is> |which are |<show> )?<the>tests?( files?| suite)?( located| kept)?"
            "( (for|of|about|covering) <name>)?",
            "(what|which|are there( any)?) tests?( files?)?( are there| exist| do we have)?"
            "( (for|of|about|cover|covering|test) <name>)?",
            "how<is> <it> tested",
        ),
        _tests,
    ),
    QuestionPattern(
        "what is marked as left to do",
        ("list the TODOs", "show FIXMEs in src about retries", "are there any todos?"),
        "to fixme hack xxx bug",
        (
            "((are|is) there |do we have |which |where are |<show> )?<the>(open |remaining )?"
            "(?P<tag>to-?dos?|fixmes?|hacks?|xxxs?|bugs?(?= (comment|note|mark)))"
            "( (comments?|items?|notes?|marks?|markers?|are there|are left))*"
            "<in>( (about|mentioning|with|for|containing|matching) (?P<words>.+))?",
        ),
        _todos,
    ),
    QuestionPattern(
        "how many files and lines there are",
        (
            "how many lines of Python are there?",
            "how many files are in src?",
            "how big is this repo?",
        ),
        "how count number lines",
        (
            "how (big|large|long) is <it>",
            r"(how many|count|number of) <the>lines( of (?P<language>[\w+#. -]+?))?"
            "( (are there|are|do we have|is there|does <it> have|exist|has <it>))?<in>",
            r"(how many|count|number of) <the>((?P<language>[\w+#.-]+) )?files"
            "( (are there|are|do we have|is there|does <it> have|exist|has <it>))?<in>",
            "lines of code",
        ),
        _count,
    ),
    QuestionPattern(
        "what changed lately, as git tells it",
        (
            "what changed lately?",
            "show the last 5 commits",
            "what changed in src since yesterday?",
            "what did Ada change in the last 2 weeks?",
            "who changed README.md last?",
        ),
        "change new happen modif commit history edit log touched wrote did",
        (
            "(what|which files|anything)('s| is| was| were| has| have)?( been)?"
            " (changed?|changes|new|happened|happening|modified|committed)<lately>"
            "( (in|under|to|with|of|about) (?!the (last|past)|git)<path>)?<lately><since><by>",
            r"(<show> )?<the>(recent|latest|last|newest)( (?P<count>\d{1,4}))?"
            "( git)? (commits?|changes|history|edits)<lately>"
            "( (in|to|of|under) (?!the (last|past)|git)<path>)?<by><since>",
            "(<show> )?<the>(git )?(log|history|commits)( (of|for|in) <path>)?<by><since>",
            "who (last )?(changed|touched|edited|modified|wrote) <path>( last| lately| recently)?",
            "when (was|did) <path> (last )?(changed?|touched|edited|modified)( last)?",
            r"what did (?P<author>[\w .@`'\"-]+?) (change|do|commit|work on)<lately>"
            "( (in|to) (?!the (last|past))<path>)?<since>",
        ),
        _changes,
    ),
    QuestionPattern(
        "lines of a file",
        ("show lines 10 to 20 of src/app.py", "the last 5 lines of setup.cfg"),
        "line",
        (
            r"((<read>|what('s| is) (on|in)) )?<the>lines? (?P<first>\d{1,9})"
            r"( ?(to|-|–|through|until|and|till) ?(?P<last>\d{1,9}))? (of|in|from)"
            " <the>(file )?<path>",
            r"(<read> )?<the>(file )?<path>( (from|at|on))? lines? (?P<first>\d{1,9})"
            r"( ?(to|-|–|through|until|and|till) ?(?P<last>\d{1,9}))?",
            r"(<read> )?<the>(first|top) (?P<top>\d{1,9}) lines? (of|in|from) <the>(file )?<path>",
            r"(<read> )?<the>last (?P<end>\d{1,9}) lines? (of|in|from) <the>(file )?<path>",
        ),
        _read,
    ),
    QuestionPattern(
        "files by name",
        ("find files named *.toml", "where is pyproject.toml?"),
        "file find locate where",
        (
            "((<show>|which|where<is>) )?<the>files?"
            " (named|called|matching|like|whose name (is|has|contains)) <path>",
            "(is|are) there (a |any )?files? (named|called|matching|like) <path>",
            "(find|locate|where<is>) (the )?(file )?<path>",
        ),
        _files,
    ),
    QuestionPattern(
        "files of a language",
        ("list all Python files",),
        "file",
        (r"(<show> )?<the>(?P<language>[\w+#]+) (source )?files( here| there are)?",),
        _language_files,
    ),
    QuestionPattern(
        "what is in a folder",
        ("what is in this folder?", "what is in src/?", "list the folder docs"),
        "what folder dir content ls file which",
        (
            "what('s| is| are)( there)? (in|inside|under) <the>(<folder>|<repo>)",
            "what('s| is| are)( there)? (in|inside|under) <the>(<folder> )?<path>( <folder>)?",
            "(show|list|open|ls)( me)? <the>(contents? of )?<the><folder>( <path>)?",
            "(show|list)( me)? <the>contents? of <the><path>( <folder>)?",
            "ls( <path>)?",
            "(show|list)( me)? <the>files (in|under|of) <the>(<folder> )?<path>( <folder>)?",
            "(what|which) files are (in|under) <the>(<folder> )?<path>( <folder>)?",
        ),
        _folder,
    ),
    QuestionPattern(
        "a folder with what is below it",
        ("show the tree of src",),
        "tree",
        ("(show )?<the>((file|folder|directory) )?tree( (of|in|under|for))?( <path>)?",),
        lambda match: Folder(match["path"] or "", depth=3),
    ),
    QuestionPattern(
        "the layout and the languages",
        (
            "summarise the layout",
            "which languages are used here?",
            "how is this project organised?",
        ),
        "summar descri explain outline layout struct organi overview lang laid built what",
        (
            "((summari[sz]e|describe|explain|outline|<show>) )?<the>((<repo>|<folder>|file) )?"
            "(layout|structure|organi[sz]ation|overview|languages?|summary)"
            "( and (the )?(layout|structure|languages?))?( (used|here|(of|for|in) <it>))*",
            "(summari[sz]e|describe|explain|outline) <it>",
            "(what|which) (programming )?languages?( (are|is|does|do))?( (<it>|we))?"
            "( (used|use|written( in)?|there|in use))?( here)?",
            "how is <it> (organi[sz]ed|structured|laid out|built up)",
            "what('s| is) (this|the) <repo>( about)?",
            "what does this <repo> (contain|do)",
        ),
        lambda match: Layout(),
    ),
    QuestionPattern(
        "some words, exactly as they stand",
        ('find the text "not found"', "grep for retry_after"),
        "text string phrase word message error grep search",
        (
            "(find|search|search for|grep|grep for|look for|where<is>) (the )?"
            r"(text|string|phrase|words?|message|error( message)?) <quoted>( \w+)?",
            r"(find|search|search for|grep|grep for|look for) (the )?(text|string|phrase|words?)"
            r" (?P<rest>[^\s`'\"].*)",
            "(grep|grep for|search|search for) <quoted>",
            r"(grep|grep for|search|search for) (?P<rest>[^\s`'\"]+)",
            "where does (the )?((text|string|message) )?<quoted> (appear|occur|stand|come from)",
        ),
        _text,
    ),
    QuestionPattern(
        "who calls a function",
        ("who calls parse_range?", "where is connect called?"),
        "call invo",
        (
            "(who|what|which (functions?|methods?|code|files?|places?)) (calls?|invokes?) <name>",
            "where<is> <name> (called|invoked)( from)?",
            "where <name> (is|gets) (called|invoked)( from)?",
            "(<show> )?<the>(callers?|calls|call sites|invocations) (of|to|for) <name>",
        ),
        _about(Callers),
    ),
    QuestionPattern(
        "where a name is used",
        ("where is Session used?", "find all references to MAX_SIZE", "who uses open_stdio?"),
        "use usage refer occur mention import need read depend",
        (
            "where<is> <name> (defined and )?(used|referenced|mentioned|imported|needed|read)"
            "( here| everywhere| anywhere)?",
            "where <name> is (used|referenced|mentioned|imported|needed)",
            "(<show> )?<the>(uses|usages?|references|occurrences|mentions|imports) (of|to|for)"
            " <name>",
            "(who|what|which (files?|modules?|code|functions?|places?))"
            " (uses?|references?|imports?|mentions?|needs?|depends? on) <name>",
            "(is|are) <name> (used|referenced|called|imported)( anywhere| somewhere| at all)?",
            "how (often )?is <name> used",
            "where do we use <name>",
        ),
        _about(Uses),
    ),
    QuestionPattern(
        "where a name is defined",
        (
            "where is the class Session defined?",
            "find the definition of `connect`",
            "which file defines parse_range?",
            "where does MAX_SIZE come from?",
        ),
        "defin declar implement locat introd written create set kept source code "
        "live come sit stand find where which what who how look",
        (
            "where<is> <name> (defined|declared|implemented|located|introduced|written|created|set"
            "|kept)( here)?",
            "where <name> (is|was|comes|lives)( (defined|declared|implemented|located|set|from))?",
            "((go to|jump to|<show>|where<is>) )?<the>(definitions?|declarations?|implementations?"
            "|source|source code|code) (of|for) <name>",
            "where (do|does|did) (we|you|they|one|somebody|<it>) (define|declare|implement) <name>",
            "where (does|do) <name> (live|come from|sit|stand)",
            "where can i find <name>",
            "(which|what) (files?|modules?|places?|folders?)"
            " (defines?|declares?|implements?|contains?|has) <name>",
            "(who|what) (defines|declares|implements) <name>",
            "how is <name> (defined|implemented|declared)",
            "where<is> <name>",
            "(find|locate|look up) <name>",
        ),
        _definition,
    ),
    QuestionPattern(
        "what a name is, by its definition",
        ("what is parse_range?",),
        "what explain",
        ("what('s| is| are| does) <name>( do| mean)?", "explain <name>"),
        _what_is,
    ),
    QuestionPattern(
        "a file",
        ("read src/app.py", "open app.py:10-20", "cat setup.cfg"),
        "read cat open view print display show see get give what",
        (
            r"(read|cat|open|view|print|display)( me)? (the )?(file )?<path>"
            r"( (?P<first>\d{1,9})(-(?P<last>\d{1,9}))?)?",
            "(show|see|get|give)( me)? (the )?file <path>",
            "(what('s| is) in|what does) (the )?file <path>( (contain|say|do|look like))?",
        ),
        _read,
    ),
    QuestionPattern(
        "a file or a folder that is only named",
        ("show src/app.py", "docs/"),
        "",
        ("((show|see|what does) )?<path>( contain| say)?",),
        _only_a_path,
    ),
)
"""In the order in which they are tried: what is more particular comes first."""

_ABOUT_MENTION: Final = (
    "((<read>|summari[sz]e|what('s| is) in|what does) ?)?((this|the|that|it)( file)?)?"
    r"( say| contain)?|\S*@\S+"
)


@functools.cache
def expand(pattern: str) -> re.Pattern[str]:
    """A pattern in shorthand as a regular expression."""
    for short, long in SHORTHAND.items():
        pattern = pattern.replace(short, long)
    return re.compile(re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern), re.IGNORECASE)


def _hinted(row: QuestionPattern, asked: str) -> bool:
    return not row.hints or any(f" {hint}" in asked for hint in row.hints.split())


def understand(text: str, mentions: Sequence[str] = ()) -> Intent | None:
    """What a question asks for; None if scout cannot tell, or cannot do that.

    `mentions` are files that were handed over with the question.
    """
    asked = phrases.core(text)
    if mentions and expand(_ABOUT_MENTION).fullmatch(asked):
        return ReadFile(mentions[0])
    words = " " + re.sub(r"[`'\"“”‘’]", " ", asked.lower())
    for row in QUESTIONS:
        if not _hinted(row, words):
            continue
        for pattern in row.patterns:
            match = expand(pattern).fullmatch(asked)
            if match is not None and (made := row.make(match)) is not None:
                return made
    return None

r"""Determine which name a line of code defines, and as what, by the rules of its language.

Only one line is examined, so text in a multi-line string that looks like a definition counts as
one. Patterns match from left to right without ambiguous repetition, and only on the start of a
line, so that no line takes long. Pure: `symbols` and `rank` collect definitions.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from dragoman.scout.languages import Language

TRUE: Final = 0
"""Rank of a definition proper: a function, a class, a type."""
VALUE: Final = 1
"""Rank of a constant, a property, a declaration."""
LOCAL: Final = 2
"""Rank of a field, a parameter, or an assignment."""

MAX_LOOKED_AT: Final = 400
"""Maximum length of a line that is searched for definitions."""


class DefinitionMark(NamedTuple):
    """The definition in a line: its rank, kind and name."""

    rank: int
    kind: str
    name: str


_SHORTHAND: Final = {
    # Annotations and modifiers such as `public static` or `pub(crate)`.
    "<words>": r"\s*(?:@[\w.]+(?:\([^)]*\))?\s+)*(?:[a-z]+(?:\([^)]*\)|\[\w+\])?\s+)*?",
    # A type with its qualifiers, before a name in C and its descendants.
    "<typed>": r"(?!\s*(?:return|new|throw|else|case|assert|await|yield|in|is|as|not|and|or|delete"
    r"|typeof|goto|import|package|using|if|while|for|switch|sizeof|do|echo|print|from|export|raise"
    r"|static_assert|co_return|co_await|friend)\b|\s*(?:struct|class|union|enum)\s+\w+\s*;)"
    r"\s*[\w@~][\w\s<>\[\],.?&*:@~]*[\s*&:~>]",
    "<member>": r"\s+(?:(?:public|private|protected|static|async|override|readonly|abstract|get|set"
    r"|declare|accessor)\s+)+[*#]?",
    "<js>": r"\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?",
    "<callable>": r"(?:async\s*)?(?:function\b|\(.*=>|\w+\s*=>|class\b)",
    "<is>": r"\s*=(?![=~>])",
}

_KEYWORDS: Final = r"""
0 function <words>(?:(?:fn|fun|func|function|defp?|defmacro|sub|proc|macro)\b|macro_rules!)\*?\s*&?
+ (?:\([^)]*\)\s*)?(?:<[^>]*>\s*)?(?:[\w<>?*, ]+[.:])*<name>
0 type <words>(?:class|struct|enum|union|interface|trait|record|object|module|mod|namespace|protocol
+ |actor|type|typealias|message|service|rpc|package|defmodule|newtype)\s+(?:\w+(?:\.|::))*<name>
1 constant (?=\S)<words>(?:const|static|val|var|let|given)\s+(?:mut\s+)?\$?<name>
2 variable <words>(?:val|var|let|my|our|local)\s+(?:mut\s+)?[$@%]?<name>
"""

_RULES: Final = {
    "python": r"""
0 function \s*(?:async\s+)?def\s+<name>\s*[(\[]
0 class \s*class\s+<name>\s*(?:[(:\[]|$)
0 type \s*type\s+<name>\s*[=\[]
1 constant <name>\s*(?::[^=]*)?=(?!=)
1 variable <name>\s*:\s*\S
2 attribute \s+(?:self|cls)\.<name>\s*(?::[^=]*)?=(?!=)
2 variable \s+<name>\s*(?::[^=]*)?=(?!=)
2 field \s+<name>\s*:\s*\S
""",
    "javascript": r"""
0 function <js>(?:async\s+)?function\s*\*?\s*<name>\s*[<(]
0 class <js>(?:abstract\s+)?class\s+<name>
0 type <js>(?:const\s+)?(?:interface|type|enum|namespace|module)\s+<name>\s*(?:[<={.]|extends\b|$)
0 function <js>(?:const|let|var)\s+<name>\s*(?::[^=]*)?=\s*<callable>
1 constant (?=\S)<js>(?:const|let|var)\s+<name>
2 variable \s+(?:const|let|var)\s+<name>
0 method <member><name>\s*[?!]?\s*[<(]
0 method \s+[*#]?(?!(?:if|for|while|switch|catch|function)\b)<name>
+ (?!.*(?:=>|\bfunction\b))\s*\??(?:<[^(]*>)?\(.*\)[^;]*\{\s*\}?\s*,?$
0 function \s+#?<name>\s*[:=]\s*<callable>
0 method \s*[\w.$]+\.prototype\.<name><is>
1 property <member><name>\s*[?!]?\s*[:=;]
1 export \s*(?:module\.)?exports\.<name><is>
2 attribute \s*this\.#?<name><is>
2 property \s+["']?<name>["']?\??\s*:\s*\S
""",
    "typed": r"""
0 macro \s*#\s*define\s+<name>
0 type \s*@(?:interface|implementation|protocol)\s+<name>
0 method [-+]\s*\([^)]*\)\s*<name>
0 type \s*(?:typedef\s+)?(?:template\s*<.*>\s*)?<words>(?:struct|union|enum|class|interface|record
+ |@interface|mixin|extension|namespace|concept)\s+(?:(?:class|struct)\s+)?(?:\w+(?:::|\.))*<name>
+ \s*(?:[{(<]|:(?!:)|$|final\b|extends\b|implements\b|permits\b|where\b|with\b|on\b)
0 type \s*typedef\b.*\(\s*\*\s*<name>\s*\)
0 type \s*typedef\b.*[\s*}]<name>\s*[;\[]
0 type \s*using\s+<name>\s*=(?!=)
0 type \s*\}\s*\*?<name>\s*;
1 property <typed><name>\s*(?:\{\s*(?:get|set|init|$)|=>)
0 function <typed><name>\s*(?:<[^(]*>)?\([^;]*(?:\{.*)?$
1 declaration <typed><name>\s*(?:<[^(]*>)?\(
1 constant (?=\S)<typed><name>\s*(?:=(?!=)|;|\[)
1 field \s*(?:(?:public|protected|private|internal|static|final|const|readonly)\s+)+
+ [\w\s<>\[\],.?]+\s<name>\s*(?:=(?!=)|;)
2 variable <typed><name>\s*(?:=(?!=)|;|\[)
""",
    "go": rf"""
0 type \s+<name>\s+(?:struct|interface)\b
{_KEYWORDS}
2 variable \s*(?:(?:if|for|switch)\s+)?<name>(?:,\s*\w+)*\s*:=
""",
    "keywords": rf"""
{_KEYWORDS}
1 constant \s*(?=[A-Z])<name><is>
1 property \s*(?:(?:public|protected|private|static|readonly|var)\s+)+(?:\??[\w\\|]+\s+)?\$<name>
1 attribute \s*attr_(?:reader|writer|accessor)\b.*:<name>
2 variable \s*(?:\$(?:this->)?|@{{0,2}})<name><is>
""",
    "shell": r"""
0 function \s*function\s+<name>
0 function \s*<name>\s*\(\s*\)
1 variable (?:(?:export|readonly|declare|alias)\s+(?:-\w+\s+)*)?<name>\+?=
2 variable \s+(?:(?:export|local|declare)\s+(?:-\w+\s+)*)?<name>\+?=
""",
    "sql": r"""
0 table (?i:\s*create\s+(?:or\s+replace\s+)?(?:(?:temp|temporary|unique|materialized)\s+)*(?:table
+ |view|index|function|procedure|trigger|type|schema|sequence)\s+(?:if\s+not\s+exists\s+)?)
+ (?:["`\[]?\w+["`\]]?\.)?["`\[]?<name>
""",
    "css": r"""
0 mixin \s*@(?:mixin|function|keyframes)\s+<name>
1 variable \s*(?:--|\$|@)<name>\s*:
1 selector [.#]<name>[^;]*[{,]\s*\}?$
""",
    "make": r"""
0 target <name>(?:\s+[^\s:=]+)*\s*::?(?!=)
1 variable (?:(?:export|override|define)\s+)*<name>\s*[:?+!]{0,3}=
""",
    "keys": r"""
0 block \s*(?:variable|output|module|resource|data)\s+(?:"[^"]*"\s+)?"<name>"
1 section \s*\[+(?:[\w"-]+\.)*"?<name>"?\]+
2 key \s*(?:-\s+)?["']?<name>["']?\s*[:=](?!=)
""",
    "prose": "",
}
"""Rules by language family: rank, kind and pattern; `+` continues the previous line. The first
match counts."""

_NAMES: Final = {
    "javascript": r"[\w$]+", "keywords": r"\w+[?!]?", "css": r"[\w-]+", "keys": r"[\w-]+",
    "make": r"[\w.-]+", "shell": r"[\w-]+",
}  # fmt: skip

_CALL: Final = re.compile(r"(?:\s*(?:<[\w\s<>,.:&*\[\]?]*>|::<[^()]*>|\[[\w\s,.]*\]))?!?\s?\(")
_COMMAND: Final = re.compile(r".*(?:[;|&({`!]|\b(?:then|do|else|if|while|until))\s*|\s*")


@functools.cache
def _rules(family: str) -> tuple[re.Pattern[str], list[tuple[int, str]]]:
    """Return all rules of a family as one pattern, and the rank and kind of each rule. The name of
    the matching group is "r" and the index of the rule, as in ``r3``."""
    rows = _RULES[family].replace("\n+ ", "").split("\n")
    rules = [row.split(" ", 2) for row in rows if row]
    text = "|".join(f"(?:{rule[2].replace('<name>', f'<r{n}>')})" for n, rule in enumerate(rules))
    for short, long in _SHORTHAND.items():
        text = text.replace(short, long)
    name = _NAMES.get(family, r"\w+")
    pattern = re.sub(r"<(r\d+)>", lambda found: f"(?P<{found[1]}>{name})", text or "(?!)")
    return re.compile(pattern), [(int(rank), kind) for rank, kind, _ in rules]


def is_comment(line: str, language: Language) -> bool:
    """Return whether the line is only a comment."""
    return line.lstrip().startswith(language.comments) if language.comments else False


def defined_in(line: str, language: Language) -> DefinitionMark | None:
    """Return what the line defines, or None if it defines nothing."""
    pattern, rules = _rules(language.family)
    found = pattern.match(line, 0, MAX_LOOKED_AT)
    if found is None or found.lastgroup is None or is_comment(line, language):
        return None
    return DefinitionMark(*rules[int(found.lastgroup[1:])], found[found.lastgroup])


@functools.lru_cache(maxsize=256)
def name_pattern(name: str, family: str) -> re.Pattern[str]:
    """Return a pattern that matches a name, but not inside a longer name."""
    more = {"javascript": r"\w$"}.get(family, r"\w-" if "-" in _NAMES.get(family, "") else r"\w")
    # A name that ends with a special character, as in Ruby, may be followed by anything.
    behind = rf"(?![{more}])" if re.match(r"[\w$]", name[-1]) else ""
    return re.compile(rf"(?<![{more}]){re.escape(name)}{behind}")


def is_call(line: str, name: str, language: Language) -> bool:
    """Return whether the name is called somewhere in the line."""
    if is_comment(line, language):
        return False
    for found in name_pattern(name, language.family).finditer(line):
        if language.family == "shell":
            if _COMMAND.fullmatch(line, 0, found.start()) and line[found.end() :][:1] != "=":
                return True
        elif _CALL.match(line, found.end()):
            return True
    return False

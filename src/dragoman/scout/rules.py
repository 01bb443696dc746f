r"""What a definition looks like in each language, as a table.

Owns the rules: what stands before the name, what stands behind it, what that makes of it, and how
good an answer it is. They are tried in order and the first that fits counts. `definitions` applies
them; this module holds data only.

Every pattern is read from left to right without nested repetition, so that no line, however it was
made, takes more than linear time. A name is never a part of a pattern: the rules are compiled once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TRUE: Final = 0
"""The thing itself: a function, a class, a type."""
VALUE: Final = 1
"""A constant, a property, a declaration."""
LOCAL: Final = 2
"""A field, a parameter, something that is assigned somewhere."""
EXPORT: Final = 3
"""Not defined here, but passed on or announced."""


class Rule(NamedTuple):
    """One row. `before` has to fit all that stands before the name, `after` what follows it."""

    kind: str
    rank: int
    before: str
    after: str = ""
    capital: bool = False
    """Whether the name has to begin with a capital letter."""


_NOT_A_TYPE: Final = (
    r"(?!\s*(?:return|new|throw|else|case|assert|await|yield|in|is|as|not|and|or|delete|typeof|goto"
    r"|import|package|using|if|while|for|switch|sizeof|do|echo|print|from|export|static_assert"
    r"|co_return|co_await|friend|raise)\b)"
)
_TYPED: Final = _NOT_A_TYPE + r"(?=\s*[\w@])[\w\s<>\[\],.?&*:@~]*[\s*&:~>]"
"""A type and what belongs to it, as it stands before a name in C and its descendants."""
_TOP_TYPED: Final = r"(?=\S)" + _TYPED

_JS: Final = r"\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?"
_JS_MODS: Final = (
    r"(?:(?:public|private|protected|static|async|override|readonly|abstract|get|set|declare"
    r"|accessor)\s+)"
)
_RUST: Final = r"\s*(?:pub(?:\([^)]*\))?\s+)?"
_JAVA: Final = (
    r"\s*(?:@[\w.]+(?:\([^)]*\))?\s+)*(?:(?:public|protected|private|internal|abstract|final|static"
    r"|sealed|non-sealed|strictfp|default|partial|readonly|ref|unsafe|base|mixin|file|new)\s+)*"
)
_JAVA_KEPT: Final = (
    r"\s*(?:(?:public|protected|private|internal|static|final|const|readonly|override|virtual"
    r"|abstract|late)\s+)+"
)
_KOTLIN: Final = (
    r"\s*(?:@[\w.]+(?:\([^)]*\))?\s+)*(?:(?:public|private|protected|internal|open|abstract|final"
    r"|override|suspend|inline|operator|infix|tailrec|external|data|sealed|enum|annotation|inner"
    r"|value|lateinit|const|companion|expect|actual)\s+)*"
)
_SWIFT: Final = (
    r"\s*(?:@\w+(?:\([^)]*\))?\s+)*(?:(?:public|private|fileprivate|internal|open|static|class"
    r"|final|override|mutating|nonmutating|convenience|required|lazy|weak|unowned|indirect"
    r"|nonisolated|package)(?:\(set\))?\s+)*"
)
_SCALA: Final = (
    r"\s*(?:(?:override|private|protected|final|implicit|lazy|sealed|abstract|case|inline|open"
    r"|transparent)(?:\[\w+\])?\s+)*"
)
_PHP: Final = r"\s*(?:(?:public|protected|private|static|abstract|final|readonly)\s+)*"
_SQL: Final = (
    r"(?i:\s*create\s+(?:or\s+replace\s+)?(?:(?:temp|temporary|unique|materialized|external)\s+)*"
    r"(?:table|view|index|function|procedure|trigger|type|schema|sequence)\s+"
    r"(?:if\s+not\s+exists\s+)?)(?:[\"`\[]?\w+[\"`\]]?\.)?[\"`\[]?"
)
_FUNCTION_VALUE: Final = r"(?:async\s*)?(?:function\b|\(.*=>|\w+\s*=>|class\b)"
_SET: Final = r"\s*=(?![=~>])"
_CALLABLE: Final = r"\s*\([^;]*(?:\{.*)?$"

RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "python": (
        Rule("function", TRUE, r"\s*(?:async\s+)?def\s+", r"\s*[(\[]"),
        Rule("class", TRUE, r"\s*class\s+", r"\s*(?:[(:\[]|$)"),
        Rule("type", TRUE, r"\s*type\s+", r"\s*[=\[]"),
        Rule("constant", VALUE, r"", r"\s*(?::[^=]*)?=(?!=)"),
        Rule("variable", VALUE, r"", r"\s*:\s*\S"),
        Rule("attribute", LOCAL, r"\s+(?:self|cls)\.", r"\s*(?::[^=]*)?=(?!=)"),
        Rule("variable", LOCAL, r"\s+", r"\s*(?::[^=]*)?=(?!=)"),
        Rule("variable", LOCAL, r"\s*(?:\w+\s*,\s*)+", r"\s*(?:,\s*\w+\s*)*=(?!=)"),
        Rule("field", LOCAL, r"\s+", r"\s*:\s*\S"),
    ),
    "javascript": (
        Rule("function", TRUE, _JS + r"(?:async\s+)?function\s*\*?\s*", r"\s*[<(]"),
        Rule(
            "class",
            TRUE,
            _JS + r"(?:abstract\s+)?class\s+",
            r"\s*(?:[{<]|extends\b|implements\b|$)",
        ),
        Rule(
            "type",
            TRUE,
            _JS + r"(?:const\s+)?(?:interface|type|enum|namespace|module)\s+",
            r"\s*(?:[<={.]|extends\b|$)",
        ),
        Rule(
            "function",
            TRUE,
            _JS + r"(?:const|let|var)\s+",
            r"\s*(?::[^=]*)?=\s*" + _FUNCTION_VALUE,
        ),
        Rule(
            "constant",
            VALUE,
            r"(?=\S)" + _JS + r"(?:const|let|var)\s+",
            r"\s*(?:[:=;,!]|$|of\b|in\b)",
        ),
        Rule("variable", LOCAL, r"\s+(?:const|let|var)\s+", r"\s*(?:[:=;,!]|$|of\b|in\b)"),
        Rule("export", EXPORT, r"\s*export\s*(?:type\s*)?\{[^}]*", r"[^}]*(?:\}|$)"),
        Rule("export", EXPORT, r"\s*export\s+default\s+", r"\s*;?\s*$"),
        Rule("export", EXPORT, r"\s*module\.exports\s*=\s*\{?[^}]*", r"\s*[,};]|\s*$"),
        Rule("variable", LOCAL, _JS + r"(?:const|let|var)\s*[{\[][^=]*", r"[^=]*[}\]]"),
        Rule("method", TRUE, r"\s+" + _JS_MODS + r"+[*#]?\s*", r"\s*[?!]?\s*[<(]"),
        Rule("property", VALUE, r"\s+" + _JS_MODS + r"+#?", r"\s*[?!]?\s*[:=;]"),
        Rule(
            "method",
            TRUE,
            r"\s+[*#]?\s*",
            r"(?!.*(?:=>|\bfunction\b))\s*\??(?:<[^(]*>)?\(.*\)[^;]*\{\s*\}?\s*,?$",
        ),
        Rule("function", TRUE, r"\s+#?", r"\s*[:=]\s*" + _FUNCTION_VALUE),
        Rule("export", VALUE, r"\s*(?:module\.)?exports\.", _SET),
        Rule("method", TRUE, r"\s*[\w.$]+\.prototype\.", _SET),
        Rule("attribute", LOCAL, r"\s*[\w.$]+\.#?", _SET),
        Rule("property", LOCAL, r"\s+(?:readonly\s+)?[\"']?", r"[\"']?\??\s*:\s*\S"),
    ),
    "go": (
        Rule("function", TRUE, r"func\s+", r"\s*[(\[]"),
        Rule("method", TRUE, r"func\s+\([^)]*\)\s*", r"\s*[(\[]"),
        Rule("type", TRUE, r"\s*type\s+", r"\s*(?:[\[=*(\w]|$)"),
        Rule("type", TRUE, r"\s+", r"\s+(?:struct|interface|func)\b"),
        Rule("constant", VALUE, r"(?:var|const)\s+(?:\w+,\s*)*"),
        Rule("variable", LOCAL, r"\s+(?:var|const)\s+"),
        Rule("variable", LOCAL, r"\s*(?:(?:if|for|switch)\s+)?(?:\w+,\s*)*", r"(?:,\s*\w+)*\s*:="),
        Rule("variable", LOCAL, r"\s+", r"\s*(?:[\w\[\]*.]+\s*)?=(?!=)"),
        Rule("field", LOCAL, r"\s+", r"\s+[\w*\[\].{}]+(?:\s+`.*)?\s*(?://.*)?$"),
        Rule("method", LOCAL, r"\s+", r"\([^)]*\)\s*[\w(*\[].*$"),
    ),
    "rust": (
        Rule(
            "function",
            TRUE,
            _RUST + r"(?:(?:default|const|async|unsafe|inline|export|extern(?:\s+\"[^\"]*\")?)\s+)*"
            r"fn\s+",
            r"\s*[<(]",
        ),
        Rule(
            "type", TRUE, _RUST + r"(?:(?:unsafe|auto)\s+)*(?:struct|enum|union|trait|mod|type)\s+"
        ),
        Rule("macro", TRUE, _RUST + r"macro(?:_rules!)?\s+"),
        Rule("constant", VALUE, _RUST + r"(?:const|static)\s+(?:mut\s+)?", r"\s*[:=]"),
        Rule("export", EXPORT, r"\s*pub\s+use\s+.*"),
        Rule("variable", LOCAL, r"\s*(?:let|var)\s+(?:mut\s+)?", r"\s*[:=;]"),
        Rule("field", LOCAL, r"\s+(?:pub(?:\([^)]*\))?\s+)?", r"\s*:\s*[^:\s]"),
        Rule("variant", LOCAL, r"\s+", r"\s*(?:\(.*\)|\{.*)?\s*(?:=.*)?,?\s*$", capital=True),
    ),
    "java": (
        Rule(
            "class",
            TRUE,
            _JAVA + r"(?:class|interface|enum|record|@interface|mixin|extension)\s+",
            r"\s*(?:[<{(]|extends\b|implements\b|permits\b|with\b|on\b|$)",
        ),
        Rule("method", TRUE, _TYPED, _CALLABLE),
        Rule("constructor", VALUE, r"\s*(?:public|protected|private)\s+", r"\s*\("),
        Rule("method", VALUE, _TYPED, r"\s*\("),
        Rule("field", VALUE, _JAVA_KEPT + r"[\w\s<>\[\],.?]+\s", r"\s*(?:=(?!=)|;)"),
        Rule("variable", LOCAL, _TYPED, r"\s*(?:=(?!=)|;|:|,)"),
        Rule("constant", LOCAL, r"\s+", r"\s*(?:\(.*\))?\s*[,;{]?\s*$", capital=True),
    ),
    "csharp": (
        Rule(
            "class",
            TRUE,
            _JAVA + r"(?:class|interface|struct|enum|record(?:\s+(?:struct|class))?)\s+",
            r"\s*(?:[<{(:;]|where\b|$)",
        ),
        Rule("delegate", TRUE, r"\s*(?:\w+\s+)*delegate\s+[\w\s<>\[\],.?]*\s", r"\s*[<(]"),
        Rule("namespace", VALUE, r"\s*namespace\s+(?:[\w.]+\.)?", r"\s*(?:[;{.]|$)"),
        Rule("property", VALUE, _TYPED, r"\s*(?:\{\s*(?:get|set|init|$)|=>)"),
        Rule("method", TRUE, _TYPED, r"\s*(?:<[^(]*>)?\([^;]*(?:(?:\{|=>).*)?$"),
        Rule("constructor", VALUE, r"\s*(?:public|protected|private|internal)\s+", r"\s*\("),
        Rule("method", VALUE, _TYPED, r"\s*(?:<[^(]*>)?\("),
        Rule("field", VALUE, _JAVA_KEPT + r"[\w\s<>\[\],.?]+\s", r"\s*(?:=(?!=)|;|$)"),
        Rule("variable", LOCAL, _TYPED, r"\s*(?:=(?!=)|;|,)"),
        Rule("constant", LOCAL, r"\s+", r"\s*(?:=[^=].*)?,\s*$", capital=True),
    ),
    "c": (
        Rule("macro", TRUE, r"\s*#\s*define\s+"),
        Rule("type", TRUE, r"\s*@(?:interface|implementation|protocol)\s+"),
        Rule("method", TRUE, r"[-+]\s*\([^)]*\)\s*"),
        Rule(
            "type",
            TRUE,
            r"\s*(?:typedef\s+)?(?:template\s*<.*>\s*)?"
            r"(?:struct|union|enum(?:\s+(?:class|struct))?|class|namespace|concept)\s+(?:\w+\s+)?"
            r"(?:\w+::)*",
            r"\s*(?:final\b)?\s*(?:\{|:(?!:)|=(?!=)|$)",
        ),
        Rule(
            "forward declaration",
            EXPORT,
            r"\s*(?:template\s*<.*>\s*)?(?:struct|union|enum(?:\s+class)?|class)\s+",
            r"\s*;",
        ),
        Rule("type", TRUE, r"\s*typedef\b.*\(\s*\*\s*", r"\s*\)"),
        Rule("type", TRUE, r"\s*typedef\b.*[\s*}]", r"\s*(?:;|\[)"),
        Rule("type", TRUE, r"\s*using\s+", r"\s*=(?!=)"),
        Rule("type", TRUE, r"\s*\}\s*(?:__\w+(?:\(.*\))?\s*)?\*?", r"\s*[;,\[]"),
        Rule("declaration", LOCAL, r"\s*extern\b.*[\s*]", r".*;"),
        Rule("function", TRUE, _TYPED, _CALLABLE),
        Rule("function", VALUE, r"(?:\w+::)*~?", r"\s*\([^;]*\)?\s*(?:const\s*)?\{?$"),
        Rule("declaration", VALUE, _TOP_TYPED, r"\s*\("),
        Rule("declaration", LOCAL, _TYPED, r"\s*\("),
        Rule("variable", VALUE, _TOP_TYPED, r"\s*(?:=(?!=)|;|\[|\{|,)"),
        Rule("variable", LOCAL, _TYPED, r"\s*(?:=(?!=)|;|\[|\{|,|:)"),
        Rule("enumerator", LOCAL, r"\s+", r"\s*(?:=[^=;]*)?,?\s*(?:/[/*].*)?$", capital=True),
    ),
    "ruby": (
        Rule(
            "method",
            TRUE,
            r"\s*(?:(?:private|protected|public|private_class_method|memoize)\s+)?"
            r"def\s+(?:[\w:]+\.)?",
            r"\s*(?:[(=;\s]|$)",
        ),
        Rule("class", TRUE, r"\s*(?:class|module)\s+(?:[\w:]+::)?", r"\s*(?:[<;(]|$)"),
        Rule("attribute", VALUE, r"\s*attr_(?:reader|writer|accessor)\b.*:"),
        Rule(
            "method",
            VALUE,
            r"\s*(?:define_method|alias_method|scope|has_many|has_one|belongs_to|let!?|subject"
            r"|delegate)\s*\(?\s*:",
        ),
        Rule("alias", VALUE, r"\s*alias\s+:?"),
        Rule("constant", VALUE, r"\s*", _SET, capital=True),
        Rule("variable", LOCAL, r"\s*@{0,2}", r"\s*(?:\|\|)?=(?![=~>])"),
    ),
    "php": (
        Rule("function", TRUE, _PHP + r"function\s+&?\s*", r"\s*\("),
        Rule("class", TRUE, _PHP + r"(?:class|interface|trait|enum)\s+"),
        Rule("constant", VALUE, _PHP + r"const\s+(?:\w+\s+)?", _SET),
        Rule("constant", VALUE, r".*\bdefine\s*\(\s*[\"']", r"[\"']"),
        Rule(
            "property",
            VALUE,
            r"\s*(?:(?:public|protected|private|static|readonly|var)\s+)+(?:\??[\w\\|]+\s+)?\$",
            r"\s*[=;,)]",
        ),
        Rule("attribute", LOCAL, r"\s*\$this->", _SET),
        Rule("variable", LOCAL, r"\s*\$", _SET),
    ),
    "kotlin": (
        Rule(
            "function",
            TRUE,
            _KOTLIN + r"fun\s+(?:<[^>]*>\s*)?(?:[\w<>?*, ]+\.)*",
            r"\s*[(<]",
        ),
        Rule("class", TRUE, _KOTLIN + r"(?:fun\s+)?(?:class|interface|object|typealias)\s+"),
        Rule(
            "property",
            VALUE,
            r"(?=\S)" + _KOTLIN + r"(?:val|var)\s+(?:[\w<>?]+\.)*",
            r"\s*(?:[:=]|by\b|$)",
        ),
        Rule("property", LOCAL, _KOTLIN + r"(?:val|var)\s+(?:[\w<>?]+\.)*", r"\s*(?:[:=]|by\b|$)"),
        Rule("property", LOCAL, r".*[(,]\s*(?:\w+\s+)*(?:val|var)\s+", r"\s*:"),
        Rule("constant", LOCAL, r"\s+", r"\s*(?:\(.*\))?\s*[,;{]?\s*$", capital=True),
    ),
    "swift": (
        Rule("function", TRUE, _SWIFT + r"func\s+", r"\s*[(<]"),
        Rule(
            "type",
            TRUE,
            _SWIFT + r"(?:class|struct|enum|protocol|actor|typealias|associatedtype)\s+",
        ),
        Rule("extension", EXPORT, _SWIFT + r"extension\s+"),
        Rule("property", VALUE, r"(?=\S)" + _SWIFT + r"(?:let|var)\s+", r"\s*(?:[:={]|$)"),
        Rule("property", LOCAL, _SWIFT + r"(?:let|var)\s+", r"\s*(?:[:={]|$)"),
        Rule("case", LOCAL, r"\s*(?:indirect\s+)?case\s+(?:.*,\s*)?", r"\s*(?:[,(=]|$)"),
    ),
    "scala": (
        Rule("function", TRUE, _SCALA + r"def\s+", r"\s*(?:[(\[:={]|$)"),
        Rule("class", TRUE, _SCALA + r"(?:class|object|trait|enum|type)\s+"),
        Rule("value", VALUE, r"(?=\S)" + _SCALA + r"(?:val|var|given)\s+", r"\s*[:=]"),
        Rule("value", LOCAL, _SCALA + r"(?:val|var|given)\s+", r"\s*[:=]"),
    ),
    "shell": (
        Rule("function", TRUE, r"\s*function\s+", r"\s*(?:\(\s*\)|\{|$)"),
        Rule("function", TRUE, r"\s*", r"\s*\(\s*\)"),
        Rule(
            "variable", VALUE, r"(?:(?:export|readonly|declare|typeset)\s+(?:-\w+\s+)*)?", r"\+?="
        ),
        Rule("alias", VALUE, r"\s*alias\s+", r"="),
        Rule(
            "variable",
            LOCAL,
            r"\s+(?:(?:export|readonly|declare|typeset|local)\s+(?:-\w+\s+)*)?",
            r"\+?=",
        ),
    ),
    "powershell": (
        Rule("function", TRUE, r"(?i:\s*(?:function|filter|class|enum)\s+)"),
        Rule("variable", LOCAL, r"\s*\$(?:\w+:)?", _SET),
    ),
    "perl": (
        Rule("function", TRUE, r"\s*sub\s+"),
        Rule("package", TRUE, r"\s*package\s+(?:\w+::)*", r"\s*[;{]"),
        Rule("constant", VALUE, r"\s*use\s+constant\s+\{?\s*", r"\s*=>"),
        Rule("variable", LOCAL, r"\s*(?:my|our|local)\s+\(?[$@%]"),
    ),
    "lua": (
        Rule("function", TRUE, r"\s*(?:local\s+)?function\s+(?:\w+[.:])*", r"\s*\("),
        Rule("function", TRUE, r"\s*(?:local\s+)?(?:\w+\.)*", r"\s*=\s*function\b"),
        Rule("variable", VALUE, r"(?:local\s+)?(?:\w+\.)*", r"\s*=(?!=)"),
        Rule("variable", LOCAL, r"\s+(?:local\s+)?(?:\w+\.)*", r"\s*=(?!=)"),
    ),
    "elixir": (
        Rule(
            "function",
            TRUE,
            r"\s*def(?:p|macro|macrop|guard|guardp|delegate)?\s+",
            r"(?:[(\s,]|$)",
        ),
        Rule("module", TRUE, r"\s*def(?:module|protocol|impl)\s+(?:\w+\.)*", r"\s*(?:do\b|,|$)"),
        Rule("attribute", VALUE, r"\s*@", r"\s+\S"),
        Rule("variable", LOCAL, r"\s*", _SET),
    ),
    "erlang": (
        Rule("function", TRUE, r"", r"\(.*(?:->|when\b|$)"),
        Rule("record", TRUE, r"-(?:define|record|type)\s*\(?\s*"),
    ),
    "haskell": (
        Rule("function", TRUE, r"", r"\s*(?:,\s*\w+\s*)*::"),
        Rule("type", TRUE, r"(?:data|newtype|type|class)\s+(?:.*=>\s*)?"),
        Rule("function", VALUE, r"", r"\s[^=]*=(?!=)"),
    ),
    "ocaml": (
        Rule("value", TRUE, r"(?:let|and)\s+(?:rec\s+)?", r"[^\w']"),
        Rule(
            "type",
            TRUE,
            r"\s*(?:type|module(?:\s+type)?|exception|val|external|class)\s+(?:'\w+\s+)?",
        ),
        Rule("value", LOCAL, r"\s+(?:let|and)\s+(?:rec\s+)?", r"[^\w']"),
    ),
    "julia": (
        Rule(
            "function",
            TRUE,
            r"\s*(?:function|macro|(?:mutable\s+)?struct|abstract\s+type|module)\s+(?:\w+\.)*",
        ),
        Rule("function", TRUE, r"", r"\(.*\)\s*=(?!=)"),
        Rule("constant", VALUE, r"(?:const\s+)?", r"\s*=(?!=)"),
        Rule("variable", LOCAL, r"\s+", r"\s*=(?!=)"),
    ),
    "r": (
        Rule("function", TRUE, r"\s*", r"\s*(?:<-|=)\s*function\b"),
        Rule("variable", VALUE, r"", r"\s*(?:<-|=(?!=))"),
        Rule("variable", LOCAL, r"\s+", r"\s*(?:<-|=(?!=))"),
    ),
    "sql": (Rule("table", TRUE, _SQL),),
    "proto": (
        Rule(
            "message",
            TRUE,
            r"\s*(?:message|enum|service|rpc|type|interface|input|union|scalar|fragment|query"
            r"|mutation)\s+",
        ),
        Rule("field", LOCAL, r"\s*[\w.<>, ]+\s", r"\s*=\s*\d+"),
        Rule("field", LOCAL, r"\s+", r"\s*(?:\(.*\))?\s*:"),
    ),
    "hcl": (
        Rule("block", TRUE, r"\s*(?:variable|output|module|provider)\s+\"", r"\""),
        Rule("block", TRUE, r"\s*(?:resource|data)\s+\"[^\"]*\"\s+\"", r"\""),
        Rule("attribute", LOCAL, r"\s*", _SET),
    ),
    "css": (
        Rule("mixin", TRUE, r"\s*@(?:mixin|function|keyframes)\s+"),
        Rule("variable", VALUE, r"\s*(?:--|\$|@)", r"\s*:"),
        Rule("selector", VALUE, r"[^{]*[.#]", r"[^;]*[{,]\s*\}?$"),
    ),
    "markup": (Rule("element", VALUE, r".*\b(?:id|name)\s*=\s*[\"']", r"[\"']"),),
    "make": (
        Rule("target", TRUE, r"(?:[^\s:=]+\s+)*", r"(?:\s+[^\s:=]+)*\s*::?(?!=)"),
        Rule("variable", VALUE, r"(?:(?:export|override|define)\s+)*", r"\s*(?:[:?+!]{0,3}=|$)"),
    ),
    "cmake": (
        Rule(
            "target",
            TRUE,
            r"(?i:\s*(?:function|macro|add_executable|add_library|add_custom_target|option|set"
            r"|project)\s*\(\s*)",
        ),
    ),
    "docker": (
        Rule("stage", TRUE, r"(?i:\s*FROM\s+.*\sAS\s+)", r"\s*$"),
        Rule("variable", VALUE, r"(?i:\s*(?:ARG|ENV)\s+)", r"(?:[=\s]|$)"),
    ),
    "keys": (
        Rule("section", VALUE, r"\s*\[+(?:[\w\"-]+\.)*\"?", r"\"?\]+"),
        Rule("key", LOCAL, r"\s*(?:-\s+)?[\"']?(?:[\w-]+\.)*", r"[\"']?\s*[:=](?!=)"),
    ),
    "prose": (),
    "other": (
        Rule(
            "definition",
            VALUE,
            r"\s*(?:(?:public|export|pub|async|static|local)\s+)*(?:def|class|function|func|fn|fun"
            r"|struct|type|interface|enum|trait|module|sub|proc|object|record|macro)\s+",
        ),
    ),
}

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


class DefinitionRule(NamedTuple):
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

RULES: Final[dict[str, tuple[DefinitionRule, ...]]] = {
    "python": (
        DefinitionRule("function", TRUE, r"\s*(?:async\s+)?def\s+", r"\s*[(\[]"),
        DefinitionRule("class", TRUE, r"\s*class\s+", r"\s*(?:[(:\[]|$)"),
        DefinitionRule("type", TRUE, r"\s*type\s+", r"\s*[=\[]"),
        DefinitionRule("constant", VALUE, r"", r"\s*(?::[^=]*)?=(?!=)"),
        DefinitionRule("variable", VALUE, r"", r"\s*:\s*\S"),
        DefinitionRule("attribute", LOCAL, r"\s+(?:self|cls)\.", r"\s*(?::[^=]*)?=(?!=)"),
        DefinitionRule("variable", LOCAL, r"\s+", r"\s*(?::[^=]*)?=(?!=)"),
        DefinitionRule("variable", LOCAL, r"\s*(?:\w+\s*,\s*)+", r"\s*(?:,\s*\w+\s*)*=(?!=)"),
        DefinitionRule("field", LOCAL, r"\s+", r"\s*:\s*\S"),
    ),
    "javascript": (
        DefinitionRule("function", TRUE, _JS + r"(?:async\s+)?function\s*\*?\s*", r"\s*[<(]"),
        DefinitionRule(
            "class",
            TRUE,
            _JS + r"(?:abstract\s+)?class\s+",
            r"\s*(?:[{<]|extends\b|implements\b|$)",
        ),
        DefinitionRule(
            "type",
            TRUE,
            _JS + r"(?:const\s+)?(?:interface|type|enum|namespace|module)\s+",
            r"\s*(?:[<={.]|extends\b|$)",
        ),
        DefinitionRule(
            "function",
            TRUE,
            _JS + r"(?:const|let|var)\s+",
            r"\s*(?::[^=]*)?=\s*" + _FUNCTION_VALUE,
        ),
        DefinitionRule(
            "constant",
            VALUE,
            r"(?=\S)" + _JS + r"(?:const|let|var)\s+",
            r"\s*(?:[:=;,!]|$|of\b|in\b)",
        ),
        DefinitionRule(
            "variable", LOCAL, r"\s+(?:const|let|var)\s+", r"\s*(?:[:=;,!]|$|of\b|in\b)"
        ),
        DefinitionRule("export", EXPORT, r"\s*export\s*(?:type\s*)?\{[^}]*", r"[^}]*(?:\}|$)"),
        DefinitionRule("export", EXPORT, r"\s*export\s+default\s+", r"\s*;?\s*$"),
        DefinitionRule("export", EXPORT, r"\s*module\.exports\s*=\s*\{?[^}]*", r"\s*[,};]|\s*$"),
        DefinitionRule("variable", LOCAL, _JS + r"(?:const|let|var)\s*[{\[][^=]*", r"[^=]*[}\]]"),
        DefinitionRule("method", TRUE, r"\s+" + _JS_MODS + r"+[*#]?\s*", r"\s*[?!]?\s*[<(]"),
        DefinitionRule("property", VALUE, r"\s+" + _JS_MODS + r"+#?", r"\s*[?!]?\s*[:=;]"),
        DefinitionRule(
            "method",
            TRUE,
            r"\s+[*#]?\s*",
            r"(?!.*(?:=>|\bfunction\b))\s*\??(?:<[^(]*>)?\(.*\)[^;]*\{\s*\}?\s*,?$",
        ),
        DefinitionRule("function", TRUE, r"\s+#?", r"\s*[:=]\s*" + _FUNCTION_VALUE),
        DefinitionRule("export", VALUE, r"\s*(?:module\.)?exports\.", _SET),
        DefinitionRule("method", TRUE, r"\s*[\w.$]+\.prototype\.", _SET),
        DefinitionRule("attribute", LOCAL, r"\s*[\w.$]+\.#?", _SET),
        DefinitionRule("property", LOCAL, r"\s+(?:readonly\s+)?[\"']?", r"[\"']?\??\s*:\s*\S"),
    ),
    "go": (
        DefinitionRule("function", TRUE, r"func\s+", r"\s*[(\[]"),
        DefinitionRule("method", TRUE, r"func\s+\([^)]*\)\s*", r"\s*[(\[]"),
        DefinitionRule("type", TRUE, r"\s*type\s+", r"\s*(?:[\[=*(\w]|$)"),
        DefinitionRule("type", TRUE, r"\s+", r"\s+(?:struct|interface|func)\b"),
        DefinitionRule("constant", VALUE, r"(?:var|const)\s+(?:\w+,\s*)*"),
        DefinitionRule("variable", LOCAL, r"\s+(?:var|const)\s+"),
        DefinitionRule(
            "variable", LOCAL, r"\s*(?:(?:if|for|switch)\s+)?(?:\w+,\s*)*", r"(?:,\s*\w+)*\s*:="
        ),
        DefinitionRule("variable", LOCAL, r"\s+", r"\s*(?:[\w\[\]*.]+\s*)?=(?!=)"),
        DefinitionRule("field", LOCAL, r"\s+", r"\s+[\w*\[\].{}]+(?:\s+`.*)?\s*(?://.*)?$"),
        DefinitionRule("method", LOCAL, r"\s+", r"\([^)]*\)\s*[\w(*\[].*$"),
    ),
    "rust": (
        DefinitionRule(
            "function",
            TRUE,
            _RUST + r"(?:(?:default|const|async|unsafe|inline|export|extern(?:\s+\"[^\"]*\")?)\s+)*"
            r"fn\s+",
            r"\s*[<(]",
        ),
        DefinitionRule(
            "type", TRUE, _RUST + r"(?:(?:unsafe|auto)\s+)*(?:struct|enum|union|trait|mod|type)\s+"
        ),
        DefinitionRule("macro", TRUE, _RUST + r"macro(?:_rules!)?\s+"),
        DefinitionRule("constant", VALUE, _RUST + r"(?:const|static)\s+(?:mut\s+)?", r"\s*[:=]"),
        DefinitionRule("export", EXPORT, r"\s*pub\s+use\s+.*"),
        DefinitionRule("variable", LOCAL, r"\s*(?:let|var)\s+(?:mut\s+)?", r"\s*[:=;]"),
        DefinitionRule("field", LOCAL, r"\s+(?:pub(?:\([^)]*\))?\s+)?", r"\s*:\s*[^:\s]"),
        DefinitionRule(
            "variant", LOCAL, r"\s+", r"\s*(?:\(.*\)|\{.*)?\s*(?:=.*)?,?\s*$", capital=True
        ),
    ),
    "java": (
        DefinitionRule(
            "class",
            TRUE,
            _JAVA + r"(?:class|interface|enum|record|@interface|mixin|extension)\s+",
            r"\s*(?:[<{(]|extends\b|implements\b|permits\b|with\b|on\b|$)",
        ),
        DefinitionRule("method", TRUE, _TYPED, _CALLABLE),
        DefinitionRule("constructor", VALUE, r"\s*(?:public|protected|private)\s+", r"\s*\("),
        DefinitionRule("method", VALUE, _TYPED, r"\s*\("),
        DefinitionRule("field", VALUE, _JAVA_KEPT + r"[\w\s<>\[\],.?]+\s", r"\s*(?:=(?!=)|;)"),
        DefinitionRule("variable", LOCAL, _TYPED, r"\s*(?:=(?!=)|;|:|,)"),
        DefinitionRule("constant", LOCAL, r"\s+", r"\s*(?:\(.*\))?\s*[,;{]?\s*$", capital=True),
    ),
    "csharp": (
        DefinitionRule(
            "class",
            TRUE,
            _JAVA + r"(?:class|interface|struct|enum|record(?:\s+(?:struct|class))?)\s+",
            r"\s*(?:[<{(:;]|where\b|$)",
        ),
        DefinitionRule(
            "delegate", TRUE, r"\s*(?:\w+\s+)*delegate\s+[\w\s<>\[\],.?]*\s", r"\s*[<(]"
        ),
        DefinitionRule("namespace", VALUE, r"\s*namespace\s+(?:[\w.]+\.)?", r"\s*(?:[;{.]|$)"),
        DefinitionRule("property", VALUE, _TYPED, r"\s*(?:\{\s*(?:get|set|init|$)|=>)"),
        DefinitionRule("method", TRUE, _TYPED, r"\s*(?:<[^(]*>)?\([^;]*(?:(?:\{|=>).*)?$"),
        DefinitionRule(
            "constructor", VALUE, r"\s*(?:public|protected|private|internal)\s+", r"\s*\("
        ),
        DefinitionRule("method", VALUE, _TYPED, r"\s*(?:<[^(]*>)?\("),
        DefinitionRule("field", VALUE, _JAVA_KEPT + r"[\w\s<>\[\],.?]+\s", r"\s*(?:=(?!=)|;|$)"),
        DefinitionRule("variable", LOCAL, _TYPED, r"\s*(?:=(?!=)|;|,)"),
        DefinitionRule("constant", LOCAL, r"\s+", r"\s*(?:=[^=].*)?,\s*$", capital=True),
    ),
    "c": (
        DefinitionRule("macro", TRUE, r"\s*#\s*define\s+"),
        DefinitionRule("type", TRUE, r"\s*@(?:interface|implementation|protocol)\s+"),
        DefinitionRule("method", TRUE, r"[-+]\s*\([^)]*\)\s*"),
        DefinitionRule(
            "type",
            TRUE,
            r"\s*(?:typedef\s+)?(?:template\s*<.*>\s*)?"
            r"(?:struct|union|enum(?:\s+(?:class|struct))?|class|namespace|concept)\s+(?:\w+\s+)?"
            r"(?:\w+::)*",
            r"\s*(?:final\b)?\s*(?:\{|:(?!:)|=(?!=)|$)",
        ),
        DefinitionRule(
            "forward declaration",
            EXPORT,
            r"\s*(?:template\s*<.*>\s*)?(?:struct|union|enum(?:\s+class)?|class)\s+",
            r"\s*;",
        ),
        DefinitionRule("type", TRUE, r"\s*typedef\b.*\(\s*\*\s*", r"\s*\)"),
        DefinitionRule("type", TRUE, r"\s*typedef\b.*[\s*}]", r"\s*(?:;|\[)"),
        DefinitionRule("type", TRUE, r"\s*using\s+", r"\s*=(?!=)"),
        DefinitionRule("type", TRUE, r"\s*\}\s*(?:__\w+(?:\(.*\))?\s*)?\*?", r"\s*[;,\[]"),
        DefinitionRule("declaration", LOCAL, r"\s*extern\b.*[\s*]", r".*;"),
        DefinitionRule("function", TRUE, _TYPED, _CALLABLE),
        DefinitionRule("function", VALUE, r"(?:\w+::)*~?", r"\s*\([^;]*\)?\s*(?:const\s*)?\{?$"),
        DefinitionRule("declaration", VALUE, _TOP_TYPED, r"\s*\("),
        DefinitionRule("declaration", LOCAL, _TYPED, r"\s*\("),
        DefinitionRule("variable", VALUE, _TOP_TYPED, r"\s*(?:=(?!=)|;|\[|\{|,)"),
        DefinitionRule("variable", LOCAL, _TYPED, r"\s*(?:=(?!=)|;|\[|\{|,|:)"),
        DefinitionRule(
            "enumerator", LOCAL, r"\s+", r"\s*(?:=[^=;]*)?,?\s*(?:/[/*].*)?$", capital=True
        ),
    ),
    "ruby": (
        DefinitionRule(
            "method",
            TRUE,
            r"\s*(?:(?:private|protected|public|private_class_method|memoize)\s+)?"
            r"def\s+(?:[\w:]+\.)?",
            r"\s*(?:[(=;\s]|$)",
        ),
        DefinitionRule("class", TRUE, r"\s*(?:class|module)\s+(?:[\w:]+::)?", r"\s*(?:[<;(]|$)"),
        DefinitionRule("attribute", VALUE, r"\s*attr_(?:reader|writer|accessor)\b.*:"),
        DefinitionRule(
            "method",
            VALUE,
            r"\s*(?:define_method|alias_method|scope|has_many|has_one|belongs_to|let!?|subject"
            r"|delegate)\s*\(?\s*:",
        ),
        DefinitionRule("alias", VALUE, r"\s*alias\s+:?"),
        DefinitionRule("constant", VALUE, r"\s*", _SET, capital=True),
        DefinitionRule("variable", LOCAL, r"\s*@{0,2}", r"\s*(?:\|\|)?=(?![=~>])"),
    ),
    "php": (
        DefinitionRule("function", TRUE, _PHP + r"function\s+&?\s*", r"\s*\("),
        DefinitionRule("class", TRUE, _PHP + r"(?:class|interface|trait|enum)\s+"),
        DefinitionRule("constant", VALUE, _PHP + r"const\s+(?:\w+\s+)?", _SET),
        DefinitionRule("constant", VALUE, r".*\bdefine\s*\(\s*[\"']", r"[\"']"),
        DefinitionRule(
            "property",
            VALUE,
            r"\s*(?:(?:public|protected|private|static|readonly|var)\s+)+(?:\??[\w\\|]+\s+)?\$",
            r"\s*[=;,)]",
        ),
        DefinitionRule("attribute", LOCAL, r"\s*\$this->", _SET),
        DefinitionRule("variable", LOCAL, r"\s*\$", _SET),
    ),
    "kotlin": (
        DefinitionRule(
            "function",
            TRUE,
            _KOTLIN + r"fun\s+(?:<[^>]*>\s*)?(?:[\w<>?*, ]+\.)*",
            r"\s*[(<]",
        ),
        DefinitionRule(
            "class", TRUE, _KOTLIN + r"(?:fun\s+)?(?:class|interface|object|typealias)\s+"
        ),
        DefinitionRule(
            "property",
            VALUE,
            r"(?=\S)" + _KOTLIN + r"(?:val|var)\s+(?:[\w<>?]+\.)*",
            r"\s*(?:[:=]|by\b|$)",
        ),
        DefinitionRule(
            "property", LOCAL, _KOTLIN + r"(?:val|var)\s+(?:[\w<>?]+\.)*", r"\s*(?:[:=]|by\b|$)"
        ),
        DefinitionRule("property", LOCAL, r".*[(,]\s*(?:\w+\s+)*(?:val|var)\s+", r"\s*:"),
        DefinitionRule("constant", LOCAL, r"\s+", r"\s*(?:\(.*\))?\s*[,;{]?\s*$", capital=True),
    ),
    "swift": (
        DefinitionRule("function", TRUE, _SWIFT + r"func\s+", r"\s*[(<]"),
        DefinitionRule(
            "type",
            TRUE,
            _SWIFT + r"(?:class|struct|enum|protocol|actor|typealias|associatedtype)\s+",
        ),
        DefinitionRule("extension", EXPORT, _SWIFT + r"extension\s+"),
        DefinitionRule(
            "property", VALUE, r"(?=\S)" + _SWIFT + r"(?:let|var)\s+", r"\s*(?:[:={]|$)"
        ),
        DefinitionRule("property", LOCAL, _SWIFT + r"(?:let|var)\s+", r"\s*(?:[:={]|$)"),
        DefinitionRule("case", LOCAL, r"\s*(?:indirect\s+)?case\s+(?:.*,\s*)?", r"\s*(?:[,(=]|$)"),
    ),
    "scala": (
        DefinitionRule("function", TRUE, _SCALA + r"def\s+", r"\s*(?:[(\[:={]|$)"),
        DefinitionRule("class", TRUE, _SCALA + r"(?:class|object|trait|enum|type)\s+"),
        DefinitionRule("value", VALUE, r"(?=\S)" + _SCALA + r"(?:val|var|given)\s+", r"\s*[:=]"),
        DefinitionRule("value", LOCAL, _SCALA + r"(?:val|var|given)\s+", r"\s*[:=]"),
    ),
    "shell": (
        DefinitionRule("function", TRUE, r"\s*function\s+", r"\s*(?:\(\s*\)|\{|$)"),
        DefinitionRule("function", TRUE, r"\s*", r"\s*\(\s*\)"),
        DefinitionRule(
            "variable", VALUE, r"(?:(?:export|readonly|declare|typeset)\s+(?:-\w+\s+)*)?", r"\+?="
        ),
        DefinitionRule("alias", VALUE, r"\s*alias\s+", r"="),
        DefinitionRule(
            "variable",
            LOCAL,
            r"\s+(?:(?:export|readonly|declare|typeset|local)\s+(?:-\w+\s+)*)?",
            r"\+?=",
        ),
    ),
    "powershell": (
        DefinitionRule("function", TRUE, r"(?i:\s*(?:function|filter|class|enum)\s+)"),
        DefinitionRule("variable", LOCAL, r"\s*\$(?:\w+:)?", _SET),
    ),
    "perl": (
        DefinitionRule("function", TRUE, r"\s*sub\s+"),
        DefinitionRule("package", TRUE, r"\s*package\s+(?:\w+::)*", r"\s*[;{]"),
        DefinitionRule("constant", VALUE, r"\s*use\s+constant\s+\{?\s*", r"\s*=>"),
        DefinitionRule("variable", LOCAL, r"\s*(?:my|our|local)\s+\(?[$@%]"),
    ),
    "lua": (
        DefinitionRule("function", TRUE, r"\s*(?:local\s+)?function\s+(?:\w+[.:])*", r"\s*\("),
        DefinitionRule("function", TRUE, r"\s*(?:local\s+)?(?:\w+\.)*", r"\s*=\s*function\b"),
        DefinitionRule("variable", VALUE, r"(?:local\s+)?(?:\w+\.)*", r"\s*=(?!=)"),
        DefinitionRule("variable", LOCAL, r"\s+(?:local\s+)?(?:\w+\.)*", r"\s*=(?!=)"),
    ),
    "elixir": (
        DefinitionRule(
            "function",
            TRUE,
            r"\s*def(?:p|macro|macrop|guard|guardp|delegate)?\s+",
            r"(?:[(\s,]|$)",
        ),
        DefinitionRule(
            "module", TRUE, r"\s*def(?:module|protocol|impl)\s+(?:\w+\.)*", r"\s*(?:do\b|,|$)"
        ),
        DefinitionRule("attribute", VALUE, r"\s*@", r"\s+\S"),
        DefinitionRule("variable", LOCAL, r"\s*", _SET),
    ),
    "erlang": (
        DefinitionRule("function", TRUE, r"", r"\(.*(?:->|when\b|$)"),
        DefinitionRule("record", TRUE, r"-(?:define|record|type)\s*\(?\s*"),
    ),
    "haskell": (
        DefinitionRule("function", TRUE, r"", r"\s*(?:,\s*\w+\s*)*::"),
        DefinitionRule("type", TRUE, r"(?:data|newtype|type|class)\s+(?:.*=>\s*)?"),
        DefinitionRule("function", VALUE, r"", r"\s[^=]*=(?!=)"),
    ),
    "ocaml": (
        DefinitionRule("value", TRUE, r"(?:let|and)\s+(?:rec\s+)?", r"[^\w']"),
        DefinitionRule(
            "type",
            TRUE,
            r"\s*(?:type|module(?:\s+type)?|exception|val|external|class)\s+(?:'\w+\s+)?",
        ),
        DefinitionRule("value", LOCAL, r"\s+(?:let|and)\s+(?:rec\s+)?", r"[^\w']"),
    ),
    "julia": (
        DefinitionRule(
            "function",
            TRUE,
            r"\s*(?:function|macro|(?:mutable\s+)?struct|abstract\s+type|module)\s+(?:\w+\.)*",
        ),
        DefinitionRule("function", TRUE, r"", r"\(.*\)\s*=(?!=)"),
        DefinitionRule("constant", VALUE, r"(?:const\s+)?", r"\s*=(?!=)"),
        DefinitionRule("variable", LOCAL, r"\s+", r"\s*=(?!=)"),
    ),
    "r": (
        DefinitionRule("function", TRUE, r"\s*", r"\s*(?:<-|=)\s*function\b"),
        DefinitionRule("variable", VALUE, r"", r"\s*(?:<-|=(?!=))"),
        DefinitionRule("variable", LOCAL, r"\s+", r"\s*(?:<-|=(?!=))"),
    ),
    "sql": (DefinitionRule("table", TRUE, _SQL),),
    "proto": (
        DefinitionRule(
            "message",
            TRUE,
            r"\s*(?:message|enum|service|rpc|type|interface|input|union|scalar|fragment|query"
            r"|mutation)\s+",
        ),
        DefinitionRule("field", LOCAL, r"\s*[\w.<>, ]+\s", r"\s*=\s*\d+"),
        DefinitionRule("field", LOCAL, r"\s+", r"\s*(?:\(.*\))?\s*:"),
    ),
    "hcl": (
        DefinitionRule("block", TRUE, r"\s*(?:variable|output|module|provider)\s+\"", r"\""),
        DefinitionRule("block", TRUE, r"\s*(?:resource|data)\s+\"[^\"]*\"\s+\"", r"\""),
        DefinitionRule("attribute", LOCAL, r"\s*", _SET),
    ),
    "css": (
        DefinitionRule("mixin", TRUE, r"\s*@(?:mixin|function|keyframes)\s+"),
        DefinitionRule("variable", VALUE, r"\s*(?:--|\$|@)", r"\s*:"),
        DefinitionRule("selector", VALUE, r"[^{]*[.#]", r"[^;]*[{,]\s*\}?$"),
    ),
    "markup": (DefinitionRule("element", VALUE, r".*\b(?:id|name)\s*=\s*[\"']", r"[\"']"),),
    "make": (
        DefinitionRule("target", TRUE, r"(?:[^\s:=]+\s+)*", r"(?:\s+[^\s:=]+)*\s*::?(?!=)"),
        DefinitionRule(
            "variable", VALUE, r"(?:(?:export|override|define)\s+)*", r"\s*(?:[:?+!]{0,3}=|$)"
        ),
    ),
    "cmake": (
        DefinitionRule(
            "target",
            TRUE,
            r"(?i:\s*(?:function|macro|add_executable|add_library|add_custom_target|option|set"
            r"|project)\s*\(\s*)",
        ),
    ),
    "docker": (
        DefinitionRule("stage", TRUE, r"(?i:\s*FROM\s+.*\sAS\s+)", r"\s*$"),
        DefinitionRule("variable", VALUE, r"(?i:\s*(?:ARG|ENV)\s+)", r"(?:[=\s]|$)"),
    ),
    "keys": (
        DefinitionRule("section", VALUE, r"\s*\[+(?:[\w\"-]+\.)*\"?", r"\"?\]+"),
        DefinitionRule("key", LOCAL, r"\s*(?:-\s+)?[\"']?(?:[\w-]+\.)*", r"[\"']?\s*[:=](?!=)"),
    ),
    "prose": (),
    "other": (
        DefinitionRule(
            "definition",
            VALUE,
            r"\s*(?:(?:public|export|pub|async|static|local)\s+)*(?:def|class|function|func|fn|fun"
            r"|struct|type|interface|enum|trait|module|sub|proc|object|record|macro)\s+",
        ),
    ),
}

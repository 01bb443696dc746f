"""The shapes of secrets: prefixes, alphabets and lengths of well-known kinds of keys.

The data is in two tables, one of prefixes and one of patterns. Prefixes, alphabets and lengths
follow the rule set of gitleaks (MIT, see NOTICE), in our own form and without its word boundaries,
entropy and generic rules: a key is found at any position. Rules that need such a boundary, or the
name of a service before the key, to distinguish it from ordinary text are omitted. Each row is
tried only on a text that contains one of its literals, which is rare in a text without secrets.
Names that announce a secret are in `names`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_ALNUM: Final = "A-Za-z0-9"
_URL: Final = r"A-Za-z0-9_\-"
_BASE64: Final = "A-Za-z0-9+/="
_HEX: Final = "A-Fa-f0-9"

_PREFIXED: Final = (
    # Prefixes, the alphabet after them, and the minimum number of characters.
    ("ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 16),
    ("github_pat_", "A-Za-z0-9_", 16),
    ("glpat- gldt- glft- glrt- glimt- glcbt- gloas- glptt- glsoat- glffct- glagent-", _URL, 16),
    ("GR1348941", _URL, 20),
    ("sk-ant-", _URL, 16),
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_ whsec_", _ALNUM, 10),
    ("AKIA ASIA ABIA ACCA", "A-Z0-9", 12),
    ("A3T", "A-Z0-9", 17),
    ("ABSK", _BASE64, 100),
    ("bedrock-api-key-", _BASE64, 16),
    ("AIza", _URL, 20),
    ("GOCSPX-", _URL, 20),
    ("ya29.", _URL, 16),
    ("xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", "A-Za-z0-9-", 8),
    ("xoxe.xoxb- xoxe.xoxp-", "A-Za-z0-9-", 8),
    ("hooks.slack.com/services/ hooks.slack.com/workflows/", "A-Za-z0-9+/", 20),
    ("hooks.slack.com/triggers/", "A-Za-z0-9+/", 20),
    ("hvs. hvb.", _URL, 20),
    ("dop_v1_ doo_v1_ dor_v1_", "a-f0-9", 32),
    ("ops_eyJ", _BASE64 + r"_\-", 16),
    ("AGE-SECRET-KEY-1", "A-Z0-9", 50),
    ("AKCp cmVmd", _ALNUM, 59),
    ("ATATT3", _URL + "=", 100),
    ("CLOJARS_", _ALNUM, 60),
    ("LTAI", _ALNUM, 20),
    ("dapi", "a-f0-9", 32),
    ("dp.pt. dp.st. dp.ct. dp.sa.", "A-Za-z0-9.", 40),
    ("dt0c01.", "A-Za-z0-9.", 60),
    ("duffel_test_ duffel_live_", _URL + "=", 40),
    ("EZAK EZTK", _ALNUM, 54),
    ("EAAC EAAM", _ALNUM, 100),
    ("FLWSECK- FLWSECK_TEST- FLWPUBK- FLWPUBK_TEST-", "A-Ha-h0-9X-", 12),
    ("fo1_", _URL, 43),
    ("fm1a_ fm1r_ fm2_", _BASE64, 100),
    ("fio-u-", _URL + "=", 60),
    ("glc_", _BASE64, 32),
    ("glsa_", "A-Za-z0-9_", 32),
    ("HRKU-", _URL, 36),
    ("api_org_", _ALNUM, 30),
    ("lin_api_ lin_oauth_", _ALNUM, 32),
    ("NRAK- NRII- NRJS-", "A-Za-z0-9-", 19),
    ("ntn_", _ALNUM, 40),
    ("sha256~", _URL, 40),
    ("pplx-", _ALNUM, 40),
    ("PMAK-", "A-Za-z0-9-", 40),
    ("pnu_", _ALNUM, 36),
    ("pscale_tkn_ pscale_oauth_ pscale_pw_", _URL + "=.", 32),
    ("pul-", "a-f0-9", 40),
    ("p8e-", _ALNUM, 32),
    ("rdme_", _ALNUM, 70),
    ("rubygems_", "a-f0-9", 48),
    ("sgp_ sgp_local_", "A-Fa-f0-9_", 40),
    ("shippo_live_ shippo_test_", _HEX, 40),
    ("shpat_ shpca_ shppa_ shpss_", _HEX, 32),
    ("sm_aat_ sm_pat_ sm_sat_", _ALNUM, 16),
    ("sntryu_", "a-f0-9", 60),
    ("sntrys_", _BASE64 + "_", 60),
    ("sq0atp- sq0csp-", _URL, 22),
    ("tfp_", _URL + ".=", 50),
    ("tk-us-", _URL, 48),
    ("xkeysib- xsmtpsib-", "A-Za-z0-9-", 64),
    ("key-", "a-f0-9", 32),
    ("dnkey-", _URL + "=", 40),
    ("eyJrIjoi", _BASE64, 70),
    # A JSON Web Token in base64.
    ("ZXlK", _BASE64, 80),
    ("sl.", _URL + "=", 130),
    ("AQVN", _URL, 35),
    ("ico-", _ALNUM, 32),
    ("s-s4t2ud- s-s4t2af-", "a-f0-9", 64),
    ("v1.0-", "a-f0-9-", 100),
    ("scauth_ authress_", _ALNUM + r"_.+/=\-", 40),
    ("access-sandbox- access-development- access-production-", "a-f0-9-", 36),
    (".webhook.office.com/webhookb2/", _ALNUM + "@/-", 40),
)

_APART: Final = "(?<![A-Za-z0-9])"
"""Matches where no ASCII letter or digit comes before. An underscore or a letter of another script
may."""

_MIXED: Final = r"(?=[\w-]{0,40}[0-9])(?=[\w-]{0,60}[A-Z])(?=[\w-]{0,60}[a-z])"
"""Requires a digit, an upper-case and a lower-case letter. Ordinary words and hexadecimal numbers
do not have all three."""

_SPECIAL: Final = (
    # Short prefixes are also the ends of words (`task-`, `network-`, `pnpm_`). At a word boundary
    # they need few characters after them; within a word they need characters that an ordinary word
    # does not have.
    (
        ("sk-",),
        rf"(?:{_APART}sk-[\w-]{{8,}}|(?<![aeiou])sk-(?=[\w-]{{0,40}}[0-9])[\w-]{{20,}}"
        rf"|sk-(?:[a-z0-9]{{2,10}}-){{0,3}}{_MIXED}[\w-]{{20,}})",
    ),
    (("pk-", "rk-"), rf"{_APART}[pr]k-[\w-]{{8,}}"),
    (("xai-",), rf"(?:{_APART}xai-[\w-]{{8,}}|xai-[\w-]{{40,}})"),
    (
        ("gsk_", "hf_", "npm_"),
        rf"(?:{_APART}(?:gsk|hf|npm)_[{_ALNUM}]{{16,}}|(?:gsk|hf|npm)_[{_ALNUM}]{{30,}})",
    ),
    (("ops_",), rf"ops_[{_ALNUM}+/]{{40,}}=*"),
    (("SG.",), rf"SG\.(?=[\w.=-]{{0,40}}[0-9])[{_URL}=]{{16,}}[{_URL}=.]{{20,}}"),
    (("pypi-",), rf"pypi-(?=[\w-]{{0,40}}[A-Z0-9])[{_URL}]{{40,}}"),
    # Twilio: keys and accounts.
    (("SK", "AC"), rf"(?:SK|AC)[{_HEX}]{{32}}"),
    # Telegram: the number of a bot, and its token.
    ((":A",), rf"[0-9]{{5,16}}:A[{_URL}]{{34}}"),
    (("Q~",), rf"[{_ALNUM}_~.]{{3}}[0-9]Q~[{_URL}~.]{{31,}}"),
    ((".atlasv1.",), rf"[{_ALNUM}]{{14}}\.atlasv1\.[{_URL}=]{{40,}}"),
    (("_mmk",), rf"[{_ALNUM}]{{6}}_[{_ALNUM}]{{29}}_mmk"),
    (("glpat-", "glrt-"), rf"gl(?:pat|rt)-[{_URL}]{{16,}}\.[a-z0-9]{{9}}"),
    (("_gitlab_session",), rf"_gitlab_session=(?P<secret>[{_ALNUM}]{{32}})"),
    (("pat.", "sat."), rf"[ps]at\.[{_URL}]{{22}}\.[{_ALNUM}]{{24}}\.[{_ALNUM}]{{20}}"),
    (("pat",), rf"pat[{_ALNUM}]{{14}}\.[a-f0-9]{{64}}"),
    (
        (".acc_", ".acc-"),
        rf"(?:sc|ext)_[{_ALNUM}]{{5,30}}\.[{_ALNUM}]{{4,6}}\.acc[_-][{_ALNUM}-]{{10,32}}\.[{_URL}+/=]{{30,}}",
    ),
    (("4b1d",), rf"4b1d(?=[a-z0-9]{{0,37}}[A-Z])[{_ALNUM}]{{38}}"),
    (("pk.", "sk."), r"[ps]k\.[A-Za-z0-9]{60}\.[A-Za-z0-9]{22}"),
    (("t1.",), rf"t1\.[{_URL}]+={{0,2}}\.[{_URL}]{{86}}={{0,2}}"),
    (("API-",), r"API-(?=[A-Z]{0,25}[0-9])[A-Z0-9]{26}"),
    (("A3-",), r"A3-[A-Z0-9]{6}-[A-Z0-9]{5,6}(?:-?[A-Z0-9]{5,6}){3,4}"),
    (
        ("AccountKey", "SharedAccessKey"),
        rf"(?:AccountKey|SharedAccessKey)=(?P<secret>[{_BASE64}]{{16,}})",
    ),
    # A JSON Web Token. Tried only at the start of a word that has two dots in the right places, so
    # that a long word is not scanned again from each position.
    (
        ("eyJ",),
        r"(?<![\w-])(?=[\w-]+\.[\w-]{8,}+\.)[\w-]*?(?P<secret>eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+)",
    ),
    (
        ("-----BEGIN ",),
        r"(?s:-----BEGIN [A-Z0-9_ -]{0,64}PRIVATE KEY"
        r".*?(?:-----END [A-Z0-9_ -]{0,64}KEY(?: BLOCK)?-----|\Z))",
    ),
    # A URL keeps its host. A user name alone is not a secret unless it is as long as a key.
    (("://",), r"://(?P<secret>[^/?#\s:@]*:[^/\s@]{1,256}|[^/?#\s:@]{16,256})@"),
)

_BEGINNINGS: Final = {"eyJ": r"eyJ[\w-]{8}"}
"""Patterns for the beginnings of secrets, by literal: while a text may still grow, such a beginning
is enough to suspect a secret."""


class Shape(NamedTuple):
    """One kind of secret: a literal that it always contains, the pattern of the whole secret, and
    the pattern of a beginning that is enough to suspect one."""

    literal: str
    pattern: str
    beginning: str


def _shapes() -> Iterator[Shape]:
    for prefixes, alphabet, least in _PREFIXED:
        for literal in prefixes.split():
            pattern = f"{re.escape(literal)}[{alphabet}]{{{least},}}"
            yield Shape(literal, pattern, pattern)
    for literals, pattern in _SPECIAL:
        for literal in literals:
            yield Shape(literal, pattern, _BEGINNINGS.get(literal, pattern))


SHAPES: Final = tuple(_shapes())

_RARER: Final = " etaoinsr0123456789hdlucmfwypvbgk.,-:/_jqxzETAOINSHRDLUCMFWYPVBGKJQXZ~"
"""Characters by their frequency in texts, the most common first."""


def by_rarest(words: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Group words by their rarest character. A text without that character need not be searched for
    the words, and a search for one character takes a fraction of the time."""
    found: dict[str, dict[str, None]] = {}
    for word in words:
        found.setdefault(max(word, key=_RARER.index), {})[word] = None
    return tuple((rarest, tuple(each)) for rarest, each in found.items())


_BY_LITERAL: Final = {
    literal: tuple(shape for shape in SHAPES if shape.literal == literal)
    for literal in dict.fromkeys(shape.literal for shape in SHAPES)
}

_GATES: Final = {
    # What must follow a prefix, by the prefix's last character. Most prefixes end alike, so a
    # single search replaces the searches for each of them.
    "_": r"_[A-Za-z0-9+/=.-]{10}",
    "-": r"-[A-Za-z0-9+/=._-]{8}",
    ".": r"\.[A-Za-z0-9=._-]{16}",
    # This prefix is also the beginning of many words.
    "pat": r"pat[A-Za-z0-9]{14}\.",
}
_OPEN: Final = frozenset(
    # Prefixes whose body may contain the same character again before the gate ends.
    f"{prefix}"
    for prefixes, alphabet, _ in _PREFIXED
    for prefix in prefixes.split()
    if prefix.endswith("_") and "_" in alphabet
)
_GATED: Final = tuple(
    (
        gate,
        pattern,
        tuple(each for each in _BY_LITERAL if each.endswith(gate) and each not in _OPEN),
    )
    for gate, pattern in _GATES.items()
)
_BY_RAREST: Final = by_rarest(
    literal for literal in _BY_LITERAL if not any(literal in gated for _, _, gated in _GATED)
)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern. It is compiled on first use, because a command that only looks up
    a session needs none of them.

    Letters are ASCII only: a key is recognised even directly after a letter of another script.
    """
    return re.compile(pattern, re.ASCII)


def literals_in(text: str) -> Iterator[str]:
    """Yield the literals of shapes that occur in a text. A literal may be left out if the
    characters after it are too few, or not those of a secret."""
    for gate, pattern, literals in _GATED:
        if gate in text and compiled(pattern).search(text):
            for literal in literals:
                if literal in text:
                    yield literal
    for rarest, literals in _BY_RAREST:
        if rarest in text:
            for literal in literals:
                if literal in text:
                    yield literal


def has_literal(text: str) -> bool:
    """Return whether a text contains a literal of any shape."""
    return next(literals_in(text), None) is not None


def may_hold(text: str) -> bool:
    """Return whether a text contains something in the shape of a secret, or of the beginning of
    one."""
    # Plain loops: this runs for every chunk of every answer.
    for gate, pattern, literals in _GATED:
        if gate in text and compiled(pattern).search(text) and _begins(text, literals):
            return True
    for rarest, literals in _BY_RAREST:
        if rarest in text and _begins(text, literals):
            return True
    return False


def _begins(text: str, literals: tuple[str, ...]) -> bool:
    for literal in literals:
        if literal in text:
            for shape in _BY_LITERAL[literal]:
                if compiled(shape.beginning).search(text):
                    return True
    return False


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of secrets in a text, found by their shape. They may overlap."""
    for literal in literals_in(text):
        for shape in _BY_LITERAL[literal]:
            pattern = compiled(shape.pattern)
            group = "secret" if pattern.groupindex else 0
            for found in pattern.finditer(text):
                yield found.span(group)


def looks_like_a_secret(text: str) -> bool:
    """Return whether a text contains something in the shape of a secret."""
    return next(spans(text), None) is not None

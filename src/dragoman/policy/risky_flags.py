"""Options and words that make a program write files or run other programs, by program.

`beyond` returns the positions of such words in a command; `runs_others` says whether one of them
certainly runs a program. If in doubt, a word counts as risky, which costs a permission question.
`policy.command_patterns` checks whether a rule names these words; `command_expansion` finds
commands inside commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dragoman.policy.globs import UNKNOWN


class RiskyFlags(NamedTuple):
    """Risky options of one program."""

    names: tuple[str, ...] = ()
    """Long options. They may be abbreviated, as many programs allow."""
    letters: str = ""
    """One-letter options, which may be combined in one word."""
    writes: tuple[str, ...] = ()
    """Long options that write a file and run no program."""
    write_letters: str = ""
    valued: str = ""
    """Other letters that take the rest of the word as their value."""
    by_name: bool = True
    """Whether its other arguments are mostly file names. If so, a word whose beginning is unknown,
    such as a star, may expand to an option."""


_MAKE: Final = RiskyFlags(
    ("--eval", "--file", "--makefile", "--directory", "SHELL", ".SHELLFLAGS", "MAKEFLAGS"),
    letters="fCE",
    valued="IjloW",
    by_name=False,
)
_COPY: Final = RiskyFlags(letters="SoFDb", valued="cilPRsX")

EXTRAS: Final = {
    "ack": RiskyFlags(("--pager", "--ackrc")),
    "ag": RiskyFlags(("--pager",)),
    "bat": RiskyFlags(("--pager",)),
    "batcat": RiskyFlags(("--pager",)),
    "cargo": RiskyFlags(("--config",), letters="Z", valued="pFj", by_name=False),
    "curl": RiskyFlags(
        ("--config",),
        letters="K",
        writes=(
            *("--output", "--remote-name", "--remote-name-all", "--output-dir", "--dump-header"),
            *("--cookie-jar", "--trace", "--trace-ascii", "--stderr", "--libcurl", "--hsts"),
            *("--alt-svc", "--etag-save"),
        ),
        write_letters="oODc",
        valued="AbCdeEFhHmPQrTuUwxXyYzt",
    ),
    "date": RiskyFlags(writes=("--set",), write_letters="s", valued="dfrI"),
    "diff3": RiskyFlags(("--diff-program",)),
    "file": RiskyFlags(writes=("--compile",), write_letters="C", valued="eFfmP"),
    "go": RiskyFlags(
        ("-exec", "--exec", "-toolexec", "--toolexec", "-vettool", "--vettool"),
        # `go env -w` stores variables, some of which name programs to run.
        writes=("-w", "--w"),
        by_name=False,
    ),
    "gmake": _MAKE,
    "gradle": RiskyFlags(("--init-script",), letters="I", valued="bcgpDPx", by_name=False),
    "helm": RiskyFlags(("--post-renderer", "--kubeconfig"), by_name=False),
    "iconv": RiskyFlags(writes=("--output",), write_letters="o", valued="ft"),
    "info": RiskyFlags(writes=("--output",), write_letters="o", valued="dfInkx"),
    "kubectl": RiskyFlags(("--kubeconfig",), by_name=False),
    "less": RiskyFlags(
        ("--lesskey-file", "--lesskey-src", "--lesskey-content"),
        letters="k",
        writes=("--log-file", "--LOG-FILE"),
        write_letters="oO",
        valued="bhjpPtTxyzD#",
    ),
    "make": _MAKE,
    "man": RiskyFlags(
        ("--pager", "--html", "--config-file"), letters="PHC", valued="RLmMSserEpT", by_name=False
    ),
    "npm": RiskyFlags(
        ("--script-shell", "--node-options", "--call"), letters="c", valued="Cw", by_name=False
    ),
    "pnpm": RiskyFlags(
        ("--script-shell", "--node-options", "--shell-mode"), letters="c", valued="C", by_name=False
    ),
    "rg": RiskyFlags(("--pre", "--hostname-bin")),
    "rsync": RiskyFlags(("--rsh", "--rsync-path"), letters="e", valued="fBTM@"),
    "scp": _COPY,
    "sdiff": RiskyFlags(("--diff-program",), writes=("--output",), write_letters="o", valued="Iw"),
    "sftp": _COPY,
    "shuf": RiskyFlags(writes=("--output",), write_letters="o", valued="in"),
    "sort": RiskyFlags(
        ("--compress-program",), writes=("--output",), write_letters="o", valued="kStT"
    ),
    "tar": RiskyFlags(
        (
            *("--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command"),
            *("--rmt-command", "--info-script", "--new-volume-script"),
        ),
        letters="IF",
        valued="fbCgXTVKNLH",
    ),
    "tcpdump": RiskyFlags(letters="z", write_letters="w", valued="BcCEGijmMrsTVWyZ"),
    "tree": RiskyFlags(write_letters="oR", valued="LPIHT"),
    "wget": RiskyFlags(
        ("--use-askpass", "--config", "--execute"), letters="e", valued="oaiBtOTwQPUlARDIX"
    ),
    "yq": RiskyFlags(
        writes=("--inplace", "--in-place", "--split-exp"), write_letters="is", valued="opI"
    ),
    "zip": RiskyFlags(("-TT", "--unzip-command"), by_name=False),
}

# -- git

GIT_VALUES: Final = frozenset({"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix"})
GIT_PLANTS: Final = frozenset(
    """
    filter-branch difftool mergetool instaweb daemon remote-ext credential hook config web--browse
    maintenance send-email merge-index submodule--helper for-each-repo
    """.split()
)
"""Subcommands of git that run other programs, or configure programs to be run later."""
GIT_ASKS: Final = frozenset({"--get", "--get-all", "--list", "-l", "get", "list"})
"""Options of `git config` that only read."""
GIT_EXTRAS: Final = (
    *("--upload-pack", "--receive-pack", "--exec", "--extcmd", "--open-files-in-pager"),
    *("--template", "--config", "--output", "--output-directory"),
    # Programs named by the settings and attributes of the repository.
    *("--ext-diff", "--textconv", "--filters"),
)
GIT_SIGNATURES: Final = ("%G", "%(signature")
"""Parts of a format that run the program that checks signatures."""
GIT_TRANSPORT: Final = re.compile(r"(--\w[\w-]*=)?[\w+.-]+::")
"""Matches an address such as ``helper::address``, for which git runs a helper program. Checked for
subcommands that take addresses."""
GIT_ADDRESSES: Final = frozenset(
    "archive clone fetch fetch-pack ls-remote pull push remote send-pack submodule".split()
)
GIT_LETTERS: Final = {
    "archive": ("o", ""),
    "clone": ("uc", "bjo"),
    "format-patch": ("o", "vU"),
    "grep": ("O", "efABCm"),
    "rebase": ("xi", "sXCS"),
}
GIT_READS: Final = frozenset(
    """
    archive blame cat-file diff diff-files diff-index diff-tree fetch format-patch grep log
    ls-remote pull range-diff reflog rev-list shortlog show whatchanged
    """.split()
)
"""Subcommands with risky options, for which a word that may be an option counts as risky: a star
may expand to one."""
GIT_FLAGS: Final = frozenset(
    """
    --cached --name-only --name-status --numstat --oneline --patch --shortstat --staged --stat -p -w
    """.split()
)
"""Options that certainly take no value, so that a ``--`` after them ends the options."""

# -- programs with a language

AWK: Final = re.compile(r"[gmn]?awk")
AWK_ACTS: Final = re.compile(r"system|getline|extension|[|>@]")
"""Matches what runs a program, or reads or writes a file, in an awk script."""
SED_LINES: Final = re.compile(r"\d+(,(\d+|\$))?p")
LESS_MOVES: Final = re.compile(r"\+{1,2}(\d+g?|G|F|/.*)")
FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
FIND_WRITES: Final = ("-delete", "-fprint", "-fls")
FD_RUNS: Final = (("--exec", "--exec-batch"), "xX", "dtEeSjcCo")
SECOND_IS_WRITTEN: Final = {"uniq": "fsw", "xxd": "cglosnR"}
"""Programs that write their second file argument, with their options that take a value."""
PLAIN_CONVERSION: Final = re.compile(r"%[-0-9.]*[bcqs%]")
"""Matches the conversions of `printf` that are safe for any argument. Some shells evaluate the
arguments of numeric conversions as expressions."""
CALCULATING: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-t"})
"""Operators of `test` whose operands some shells evaluate, including variables."""
VARIABLE: Final = re.compile(r"[A-Za-z_]")
SUBSCRIPTS: Final = frozenset(
    """
    [ [[ declare export let local printf read readonly test typeset unset wait
    """.split()
)
"""Shell words that may evaluate the text between brackets, including commands."""


class RiskyFlag(NamedTuple):
    """A risky word of a command, by its index."""

    place: int
    runs: bool = True
    """Whether it certainly runs a program."""


def beyond(name: str, words: Sequence[str]) -> frozenset[int]:
    """Return the indices of a command's risky words, which do more than the program is known for.

    `name` is the plain name of the program. Effects without their own word, such as commands read
    from a file, are not detected here.
    """
    return frozenset(found.place for found in _beyond(name, words))


def runs_others(name: str, words: Sequence[str]) -> bool:
    """Return whether one of these words certainly makes the program run another program."""
    return any(found.runs for found in _beyond(name, words))


def _beyond(name: str, words: Sequence[str]) -> Iterator[RiskyFlag]:
    if name == "git":
        yield from _git(words)
    elif name in ("find", "fd", "fdfind"):
        yield from _finder(name, words)
    elif name == "sed":
        if not sed_only_prints(words[1:]):
            # Its language has commands that run programs and write files.
            yield from (RiskyFlag(at) for at in range(1, len(words)))
    elif AWK.fullmatch(name):
        yield from _awk(words)
    elif name == "date":
        yield from _date(words)
    elif name in SECOND_IS_WRITTEN:
        yield from _second(words, SECOND_IS_WRITTEN[name])
    elif name in SUBSCRIPTS:
        yield from _subscripts(name, words)
    elif name in EXTRAS:
        yield from _optional(name, words, EXTRAS[name])


def _optional(name: str, words: Sequence[str], extras: RiskyFlags) -> Iterator[RiskyFlag]:
    for at, word in enumerate(words[1:], 1):
        bundle = f"-{word}" if name == "tar" and at == 1 and word[:1] != "-" else word
        if _is_extra(bundle, extras.names, extras.letters, extras.valued):
            yield RiskyFlag(at)
        elif extras is _MAKE and "=" in word and word[:1] != "-":
            # Variables of a makefile are often commands: `CC=…`.
            yield RiskyFlag(at)
        elif name == "less" and word.startswith("+") and not LESS_MOVES.fullmatch(word):
            yield RiskyFlag(at)
        elif _is_extra(bundle, extras.writes, extras.write_letters, extras.valued) or (
            extras.by_name and _may_be_option(word) and not options_ended(words[:at])
        ):
            yield RiskyFlag(at, runs=False)


def _is_extra(word: str, names: Sequence[str], letters: str = "", valued: str = "") -> bool:
    """Return whether a word is one of these options, with or without its value, or an abbreviation
    of it."""
    # An assignment in make may have another character before the equals sign.
    name = word.partition("=")[0].rstrip(":?+!")
    for option in names:
        if name == option or (len(name) > 2 and name[:2] == "--" and option.startswith(name)):
            return True
    if word[:1] != "-" or word[:2] == "--":
        return False
    for letter in word[1:]:
        if letter in letters:
            return True
        if letter in valued:
            return False
    return False


def _may_be_option(word: str) -> bool:
    """Return whether this word may be an option, because its beginning or its meaning is
    unknown."""
    return word.startswith(UNKNOWN) or (word[:1] == "-" and UNKNOWN in word.partition("=")[0])


def _git(words: Sequence[str]) -> Iterator[RiskyFlag]:
    at = 1
    while at < len(words) and (words[at].startswith("-") or UNKNOWN in words[at]):
        word = words[at]
        pair = word in GIT_VALUES or word in ("-c", "--config-env")
        found = UNKNOWN in word or word.startswith(("-c", "--config-env", "--exec-path"))
        if word.partition("=")[0] in GIT_VALUES:
            # Another repository has its own settings, which name programs.
            value = "".join(words[at + 1 : at + 2]) if pair else word.partition("=")[2]
            outside = value.startswith(("/", "~", "..")) or "/.." in value or UNKNOWN in value
            found = found or outside or word.startswith(("--git-dir", "--work-tree"))
        if found:
            yield RiskyFlag(at)
        if found and pair:
            yield RiskyFlag(at + 1)
        at += 2 if pair else 1
    if at < len(words):
        yield from _subcommand(words, at)


def _subcommand(words: Sequence[str], at: int) -> Iterator[RiskyFlag]:
    sub = words[at]
    following = words[at + 1 :]
    if sub in GIT_PLANTS and not (sub == "config" and GIT_ASKS & set(following[:1])):
        yield from (RiskyFlag(place) for place in range(at, len(words)))
    letters, valued = GIT_LETTERS.get(sub, ("", ""))
    starts = {"bisect": "run", "submodule": "foreach"}.get(sub)
    runs = False
    for place, word in enumerate(following, at + 1):
        runs = runs or word == starts
        if (
            runs
            or "ext::" in word.casefold()
            or (sub in GIT_ADDRESSES and GIT_TRANSPORT.match(word) is not None)
            or any(each in word for each in GIT_SIGNATURES)
            or word.startswith("-O")
            or _is_extra(word, GIT_EXTRAS, letters, valued)
        ):
            yield RiskyFlag(place)
        elif sub in GIT_READS and _may_be_option(word) and not options_ended(words[at:place]):
            yield RiskyFlag(place, runs=False)


def options_ended(words: Sequence[str]) -> bool:
    """Return whether ``--`` is among these words, and not as the value of an option."""
    if "--" not in words:
        return False
    before = words[words.index("--") - 1]
    return before[:1] != "-" or before in GIT_FLAGS


def _finder(name: str, words: Sequence[str]) -> Iterator[RiskyFlag]:
    for at, word in enumerate(words[1:], 1):
        if word in FIND_RUNS if name == "find" else _is_extra(word, *FD_RUNS):
            # Together with the program that is run: a rule has to name both.
            yield from (RiskyFlag(at), RiskyFlag(at + 1))
        elif name == "find" and word.startswith(FIND_WRITES):
            yield RiskyFlag(at)
        elif _may_be_option(word):
            yield RiskyFlag(at, runs=word[:1] == "-")


def sed_only_prints(rest: Sequence[str]) -> bool:
    """Return whether sed, with these arguments, only prints some lines."""
    return (
        len(rest) >= 2
        and rest[0] == "-n"
        and SED_LINES.fullmatch(rest[1]) is not None
        # Another option may turn the lines into a file name, and bring its own script.
        and not any(word[:1] == "-" or word.startswith(UNKNOWN) for word in rest[2:])
    )


def _awk(words: Sequence[str]) -> Iterator[RiskyFlag]:
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        if not words[at].startswith(("-F", "-v")):
            # Others read scripts from files, or write files.
            yield RiskyFlag(at)
        at += 2 if words[at] in ("-F", "-v") else 1
    if at < len(words) and words[at] == "--":
        at += 1
    if at < len(words):
        script = words[at].replace("||", "").replace(">=", "")
        if UNKNOWN in script or AWK_ACTS.search(script):
            yield RiskyFlag(at)


def _date(words: Sequence[str]) -> Iterator[RiskyFlag]:
    """Yield the options that set the clock, and the words that do so without an option."""
    yield from _optional("date", words, EXTRAS["date"])
    for at, word in enumerate(words[1:], 1):
        value = words[at - 1] in ("-d", "-r", "--date", "--reference", "-ud")
        if word[:1] not in ("-", "+", UNKNOWN) and not value:
            yield RiskyFlag(at, runs=False)


def _second(words: Sequence[str], valued: str) -> Iterator[RiskyFlag]:
    files = 0
    for at, word in enumerate(words[1:], 1):
        before = words[at - 1]
        if word.startswith(UNKNOWN):
            yield RiskyFlag(at, runs=False)
        elif not (word[:1] == "-" and len(word) > 1) and not (
            len(before) == 2 and before[0] == "-" and before[1] in valued
        ):
            files += 1
            if files > 1:
                yield RiskyFlag(at, runs=False)


def _subscripts(name: str, words: Sequence[str]) -> Iterator[RiskyFlag]:
    if name == "printf":
        calculates = any("%" in PLAIN_CONVERSION.sub("", word) for word in words[1:3])
    else:
        calculates = bool(CALCULATING & set(words))
    for at, word in enumerate(words[1:], 1):
        if "[" in word and (name != "printf" or "$" in word or "`" in word):
            # Even `x[_]` is risky: `_` is the last word of the previous command, and is evaluated.
            yield RiskyFlag(at)
        elif UNKNOWN in word and name != "printf":
            # The unknown part, such as a file name, may contain brackets.
            yield RiskyFlag(at)
        elif calculates and (UNKNOWN in word or VARIABLE.search(word)) and word[:1] not in "-%":
            yield RiskyFlag(at)
        elif name == "printf" and at == 1 and (word.startswith("-v") or _may_be_option(word)):
            # `printf -v` sets a variable, which may change the program that the next command runs.
            yield RiskyFlag(at, runs=False)

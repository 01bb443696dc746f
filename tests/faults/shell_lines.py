"""Lines that try to hide a command from the policy, and real shells that run the lines it allowed.

Has the generator (seeds, a small grammar of shell oddities, mutations, nesting), and runs lines in
a directory with a PATH of stub programs, which only record that they ran. A program that ran
although no rule names it is a finding. Only stubs can be reached: no generated word is an absolute
path, and a line that gets one by a mutation is evaluated but not run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dragoman.policy import Act, Policy, Rule, judge
from dragoman.policy.command_expansion import READERS

RUN_TIMEOUT = 20.0
"""Seconds for one line, which only starts stubs."""

STATUS = Policy(rules=(Rule(action="allow", commands=("git status *",)),))
"""Only `git status` may run."""
READS = Policy(preset="approve-reads")
"""For a claimed read, only known readers may run."""
NO_RM = Policy(preset="approve-all", rules=(Rule(action="deny", commands=("rm",)),))
"""Everything except `rm` may run."""

FIRST = (
    "git status",
    "git status --short",
    "cat a",
    "echo x",
    "ls -l",
    "head -n 3 a",
    "git status --",
)
SECOND = ("touch P", "rm x", "evil", "rm -rf x", "evil P")
SEEDS = (
    "label: {b}",
    "{a} \\\r\n{b}",
    "{a} -- ${{x:-{{}}; {b}; echo }}",
    '{a} -- "$({a} # )\n {b})"',
    "{a} -- `{a} \\\\\\; {b}`",
    "{a} -- $((echo a); {b})",
    "{a} -- ${{x:-<({b})}}",
    "{a} &>/dev/null {b}",
    '{a} -- "${{x:-\'}}"; {b}; echo "\'}}"',
    # Here-documents, arithmetic, substitutions, functions, groups.
    "{a} <<X\n$({b})\nX",
    "{a} <<'X'\nX\n{b}",
    "{a} <<-X\n\tX\n{b}",
    "{a} <<X; {b}\nX",
    "{a} <<< $({b})",
    "{a} $((1 + $({b})))",
    "{a} $[ $({b}) ]",
    "{a} <({b}) >({b})",
    "{a} ${{x:=$({b})}}",
    "{a} ${{ {b}; }}",
    "{a}() {{ {b}; }}; {a}",
    "git() {{ {b}; }}; {a}",
    "{{ {a}; {b}; }}",
    "({a}; {b})",
    "{a} {{x,;{b}}}",
    # Shell keywords and builtins.
    "time {b}",
    "coproc {b}",
    "exec {b}",
    "eval '{b}'",
    "trap '{b}' EXIT; {a}",
    "alias git=touch\n{a}",
    "command {b}; builtin {b}",
    "noglob {b}",
    "repeat 2 {b}",
    "if {a}; then {b}; fi",
    "for x in a; do {b}; done",
    "for x (a) {b}",
    "while {b}; do break; done",
    "case a in a) {b};; esac",
    "select x in a; do {b}; done",
    "function f {{ {b}; }}; f",
    "[[ a = a ]] && {b}",
    "a[$({b})]=1",
    "a[b c]=d {b}",
    "x=1 {b}",
    "x=1; {b}",
    "env x=1 {b}",
    "nice {b}",
    "jobs -x {b}",
    "test -v 'a[$({b})]'",
    "printf -v 'a[$({b})]' y",
    # The value of `_` is evaluated.
    "echo 'a[$({b})]'; test -v 'x[_]'",
    "echo 'a[$({b})]'; test _ -eq 1",
    "echo 'a[$({b})]'; test 'x[_]' -eq 1",
    "echo 'a[$({b})]'; printf '%d' _",
    "{a} 'a[$({b})]' && test -t _",
    "echo '\\' ' ; {b} ; ' '\\'",
    "read git; {a}",
    # Separators, comments, quotes, escapes.
    "{a} |& {b}",
    "{a} &| {b}",
    "{a} >& /dev/null {b}",
    "{a} >/dev/null {b}",
    "{a} 2>&1 | {b}",
    "{a} 12>/dev/null {b}",
    "{a} x2>/dev/null; {b}",
    "{a} # x\n{b}",
    "{a} #' \n{b} #'",
    "{a} '\n{b}'",
    "{a} 'a'\\''; {b}; echo ''",
    '{a} "a\\"; {b}; echo "',
    "{a} $'a\\'; {b}; echo '",
    '{a} $"x"; {b}',
    '{a} "!"; {b}',
    "{a} ~+; {b}",
    "{a} =ls; {b}",
    "{a} \\\n; {b}",
    "{a} ; ; {b}",
    "{a} ;; {b}",
    "{a}\u00a0; {b}",
    "{a} \u2028 {b}",
    "{a}\x0b{b}",
    "{a} \x00 {b}",
    "{a} é; {b}",
    "{a} '' \"\" *; {b}",
    "{a} *",
    "{a} ?",
    "{a} -- [a-z]",
    "> P",
    "{a} > P",
    "{a} >> P",
    "{a} 2> P",
    "{a} && {b}",
    "{a} || {b}",
    "{a} & {b}",
    "{a}\n{b}",
    "{a} | {b}",
    "! {b}",
)
PIECES = (
    *(" ", " ", " ", "\n", ";", "&", "|", "&&", "||", ">", ">>", "<", "<<", "<<<", "<(", ">("),
    *("'", "'", '"', '"', "\\", "`", "$", "$(", "${", "$((", "))", ")", "}", "{", "(", "$'", '$"'),
    *(
        "!",
        "#",
        "~",
        "=",
        "*",
        "?",
        "[",
        "]",
        "[[",
        "]]",
        "%",
        "^",
        "@",
        "+",
        "-",
        "--",
        ":",
        ",",
        ".",
    ),
    *(
        "\r",
        "\r\n",
        "\t",
        "\x0b",
        "\0",
        "é",
        "\u00a0",
        "1",
        "2",
        "2>",
        "&>",
        ">&",
        "|&",
        ";;",
        "x=",
    ),
    *("/dev/null", "\\\n", "\\\r\n", "a", "x", "do", "then", "time", "in", "EOF", "x[", "x+="),
)
PLAIN = (
    *(
        "git status",
        "cat a",
        "ls",
        "echo",
        "head -n 3",
        "a",
        "b.py",
        "x",
        "-s",
        "--",
        "*",
        "?",
        "[a]",
    ),
    *(
        "'a b'",
        '"a b"',
        "'a\nb'",
        "''",
        '""',
        "'$(touch P)'",
        "'`rm x`'",
        '"(a)"',
        "x=1",
        "x=1 ",
        "a==b",
    ),
    *(
        "; ",
        " | ",
        " && ",
        " || ",
        " & ",
        "\n",
        " ",
        " ",
        " > /dev/null",
        " 2>/dev/null",
        " > P",
        "1",
    ),
    *(
        "touch P",
        "rm x",
        "evil",
        "time ",
        "do ",
        "then ",
        "exec ",
        "command ",
        "env ",
        "nice ",
        "- ",
    ),
    *(
        "coproc ",
        "noglob ",
        "repeat 1 ",
        "foreach ",
        "end",
        "in ",
        "[ ",
        " ]",
        "a[1]=2 ",
        "HEAD~1",
        "%1",
    ),
    *(
        "test -v a",
        "test -v 'x[_]'",
        "_ -eq 1",
        "'a[$(touch P)]'",
        "printf '%s'",
        "cd .",
        "builtin ",
        "eval ",
        "jobs -x ",
        "fc ",
        "hash ",
        "a#b",
        "x:y",
    ),
)
STUBS = frozenset({"git", "touch", "rm", "evil", "sh", "bash", "a", "x", "b.py", "time", *READERS})
RUNNING_STUBS = frozenset({"env", "nice", "xargs"})
NOT_FOUND = re.compile(
    r"^(?:E: )?\S+: (?:(?:line )?\d+: )?([^:]+): (?:command |inaccessible or )?not found$"
    r"|command not found: (.+)$",
    re.MULTILINE,
)
"""What shells print for a program without a stub: it would have run."""
OTHER_PATH = re.compile(r"/dev/null(?=[\s;&|)'\"`]|$)")


@dataclass
class Tally:
    """The counts of one run of the fuzzer."""

    judged: int = 0
    ran: int = 0
    findings: list[str] = field(default_factory=list)


def generated(random: Random) -> Iterator[str]:
    """Yield lines without end."""
    while True:
        kind = random.random()
        if kind < 0.35:
            line = _seed(random)
        elif kind < 0.75:
            line = "".join(random.choice(PLAIN) for _ in range(random.randint(1, 7)))
            if random.random() < 0.5:
                line = f"{random.choice(FIRST)} {line}"
        else:
            middle = "".join(random.choice(PIECES) for _ in range(random.randint(1, 8)))
            line = f"{random.choice(FIRST)}{middle}{random.choice(SECOND)}"
            line += "".join(random.choice(PIECES) for _ in range(random.randint(0, 3)))
        for _ in range(random.choice((0, 0, 0, 1, 2, 4))):
            line = _mutated(line, random)
        yield line


def _seed(random: Random) -> str:
    seed = random.choice(SEEDS)
    line = seed.format(a=random.choice(FIRST), b=random.choice(SECOND))
    if random.random() < 0.25:
        # One line inside another.
        outer = random.choice(SEEDS)
        line = outer.format(a=random.choice(FIRST), b=line)
    return line


def _mutated(line: str, random: Random) -> str:
    at = random.randrange(len(line) + 1)
    upto = min(len(line), at + random.randint(1, 3))
    kind = random.randrange(4)
    if kind == 0:
        return line[:at] + random.choice(PIECES) + line[at:]
    if kind == 1:
        return line[:at] + line[upto:]
    if kind == 2:
        return line[:at] + line[at:upto] * 2 + line[upto:]
    return line[:at] + random.choice(PIECES) + line[upto:]


def shells() -> list[tuple[str, ...]]:
    """Return the shells of this machine, as beginnings of command lines."""
    found = [
        (path,) for name in ("bash", "dash", "zsh", "ksh", "mksh") if (path := shutil.which(name))
    ]
    busybox = shutil.which("busybox")
    return found + ([(busybox, "sh")] if busybox else [])


class Stage:
    """A directory with stubs in which lines are run."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.work = folder / "work"
        self.bin = folder / "bin"
        self.work.mkdir()
        self.bin.mkdir()
        for name in STUBS | RUNNING_STUBS:
            more = 'exec "$@"\n' if name in RUNNING_STUBS else ""
            stub = self.bin / name
            stub.write_text(f"#!/bin/sh\necho {name} >> {self.log}\n{more}")
            stub.chmod(0o755)
        for name in ("a", "b.py", "x", "-s", "--output=P"):
            (self.work / name).touch()
        self.files = {path.name for path in self.work.iterdir()}

    def run(self, shell: tuple[str, ...], line: str) -> tuple[set[str], set[str]]:
        """Return the programs that ran or would have run, and the files that were created."""
        self.log.write_text("")
        done = subprocess.run(
            [*shell, "-c", line],
            cwd=self.work,
            env={"PATH": str(self.bin), "HOME": str(self.work)},
            stdin=subprocess.DEVNULL,
            # The output ends only when programs in the background have ended too.
            capture_output=True,
            timeout=RUN_TIMEOUT,
            check=False,
        )
        missed = NOT_FOUND.findall(done.stderr.decode(errors="replace"))
        ran = set(self.log.read_text().split()) | {name for pair in missed for name in pair if name}
        made = {path.name for path in self.work.iterdir()} - self.files
        for name in made:
            (self.work / name).unlink()
        return ran, made


def hunt(folder: Path, count: int, random: Random) -> Tally:
    """Evaluate `count` lines, and run each one that some policy allows in every shell."""
    stage = Stage(folder)
    found = shells()
    tally = Tally()
    seen: set[str] = set()
    for line, _ in zip(generated(random), range(count), strict=False):
        tally.judged += 1
        if line in seen:
            continue
        seen.add(line)
        workspace = str(stage.work)
        status = judge(STATUS, Act(kind="execute", line=line, workspace=workspace))
        reads = judge(READS, Act(kind="read", line=line, workspace=workspace))
        no_rm = judge(NO_RM, Act(kind="execute", line=line, workspace=workspace))
        allowed = [verdict.action == "allow" for verdict in (status, reads, no_rm)]
        if not any(allowed) or "/" in OTHER_PATH.sub("", line) or "\0" in line:
            continue
        if not any(allowed[:2]) and not {"r", "m"} <= set(line):
            # Only a name whose letters do not occur in the line is forbidden here.
            continue
        for shell in found:
            tally.ran += 1
            ran, made = stage.run(shell, line)
            problems = []
            if allowed[0] and (ran - {"git"} or made):
                problems.append(f"`git status *` let {ran} run and {made} be written")
            if allowed[1] and (ran - READERS or made):
                problems.append(f"a read let {ran} run and {made} be written")
            if allowed[2] and "rm" in ran:
                problems.append("rm ran past its denial")
            tally.findings += [f"{shell[-1]} {line!r}: {problem}" for problem in problems]
    return tally

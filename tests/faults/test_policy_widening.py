"""Attempts to get more out of a policy than it grants. Each must fail.

Every attempt is an act under a policy that forbids its effect, with links, odd spellings, shell
tricks and false claims. The controls at the end show that the same policies allow what they should,
so that refusing everything would not pass.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.policy import Act, Policy, Rule, judge, narrowed

# Allowed: edits below src, harmless commands. Everything else is left to the default preset.
NARROW = Policy(
    rules=(
        Rule(action="allow", kind=("edit", "delete", "move", "read"), paths=("src/**",)),
        Rule(
            action="allow",
            commands=(
                *("git status *", "git *", "pytest *", "ls *", "echo *", "cat src/a.py"),
                *("cd *", "./run *", "test *"),
            ),
        ),
    )
)

# Everything is allowed except this.
OPEN = Policy(
    preset="approve-all",
    rules=(
        Rule(action="deny", paths=(".env", "secrets/**", "~/.ssh/**", "/etc/**", "link/**")),
        Rule(action="deny", commands=("rm", "git push", "curl *")),
        Rule(action="deny", kind="delete", paths=("src/kept/file.txt",)),
    ),
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for folder in ("src/kept", "secrets", "docs", "bin", "target"):
        (root / folder).mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (root / ".env").write_text("KEY=1")
    (root / "src" / "a.py").write_text("")
    (root / "src" / "kept" / "file.txt").write_text("")
    (root / "src" / "out").symlink_to(outside)
    (root / "src" / "env").symlink_to("../.env")
    (root / "src" / "chain").symlink_to("env")
    (root / "src" / "loop").symlink_to("loop")
    (root / "src" / "nowhere").symlink_to(tmp_path / "not-there-yet")
    (root / "link").symlink_to("target")
    # A repository under another name, made of plain files.
    (root / "docs" / "repo" / "objects").mkdir(parents=True)
    (root / "docs" / "repo" / "refs").mkdir()
    (root / "docs" / "repo" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "docs" / "repo" / "deeper").mkdir()
    (root / "docs" / "up").symlink_to("../secrets")
    (root / "bin" / "harmless").symlink_to("/bin/rm")
    (tmp_path / "work-evil").mkdir()
    return root


def edit(*paths: str, **more: Any) -> dict[str, Any]:
    return {"kind": "edit", "paths": paths, **more}


def line(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "execute", "line": text, **more}


def argv(*words: str, **more: Any) -> dict[str, Any]:
    return {"kind": "execute", "argv": words, **more}


# Lines in which a shell finds a second command that another parser overlooks; `git status` and
# `touch x` are replaced by the subject of each table.
HIDDEN = {
    "behind a carriage return": "git status \\\r\ntouch x",
    "behind a brace in a default": "git status -- ${x:-{}; touch x; echo }",
    "behind a comment in a command": 'git status -- "$(git status # )\n touch x)"',
    "behind backslashes in backticks": "git status -- `git status \\\\\\; touch x`",
    "in what looks like arithmetic": "git status -- $((echo a); touch x)",
    "as a file in a default": "git status -- ${x:-<(touch x)}",
    "behind a redirection of bash": "git status &>/dev/null touch x",
    "behind a quote in a default": 'git status -- "${x:-\'}"; touch x; echo "\'}"',
}


def hidden(allowed: str, denied: str, **more: Any) -> dict[str, dict[str, Any]]:
    return {
        f"hidden {name}": line(
            text.replace("git status", allowed).replace("touch x", denied), **more
        )
        for name, text in HIDDEN.items()
    }


TO_WIDEN_AN_ALLOWANCE: dict[str, dict[str, Any]] = {
    **hidden("git status", "touch x"),
    # folders
    "a program of the same name in another folder": line("./run", cwd="docs"),
    "a program of the same name behind cd": line("cd docs && ./run"),
    "a repository that is not called one": line("git status", cwd="docs/repo"),
    "a repository further up": argv("git", "status", cwd="docs/repo/deeper"),
    "a repository behind cd": line("cd docs/repo; git status"),
    "a repository outside": line("cd ..; git status"),
    "a repository nobody knows where": line("cd; git status"),
    # shells
    "a subscript that is worked out": line("echo 'a[$(touch x)]'; test -v 'b[_]'"),
    "a file name that is worked out": line("test -v *"),
    "a quote that another shell leaves open": line("echo '\\' ' ; touch x ; ' '\\'"),
    # paths
    "a path outside": edit("/etc/passwd"),
    "dots that lead out": edit("src/../.env"),
    "dots that lead far out": edit("src/../../outside/file"),
    "dots behind a folder that is not there": edit("src/none/../../.env"),
    "dots over a link": edit("src/out/../outside/file"),
    "a link out of the workspace": edit("src/out/file"),
    "a link to a file": edit("src/env"),
    "a link to a link": edit("src/chain"),
    "a link in a circle": edit("src/loop/../../.env"),
    "a link to what is not there yet": edit("src/nowhere"),
    "a folder whose name only begins the same": edit("src-evil/a.py"),
    "a workspace whose name only begins the same": edit("../work-evil/src/a.py"),
    "the folder in another case": edit("SRC/a.py"),
    "the folder in other letters": edit("ｓｒｃ/a.py"),
    "one path inside and one outside": edit("src/a.py", "docs/readme.md"),
    "no path at all": edit(),
    "an empty path": edit(""),
    "a path of spaces": edit("  "),
    "a NUL byte": edit("src/a.py\0/../../.env"),
    "an address with dots": edit("file:///{workspace}/src/%2e%2e/.env"),
    "an address of another machine": edit("file://other/src/a.py"),
    "the home folder": edit("~/src/a.py"),
    "the view of another process": edit("/proc/self/cwd/src/a.py"),
    "the root of another process": edit("/proc/1/root{workspace}/src/a.py"),
    "a descriptor": edit("/dev/fd/3"),
    "a path without end": edit("src/" + "a/" * 4000),
    "a backslash": edit("src\\..\\.env", "..\\.env"),
    "a relative path in another folder": edit("src/a.py", cwd="/etc"),
    # kinds
    "a command that is called an edit": {"kind": "edit", "paths": ("src/a",), "line": "rm x"},
    "a command that is called a reading": {"kind": "read", "line": "rm -rf /"},
    "an edit that is called a reading": {
        "kind": "read",
        "evident": ("edit",),
        "paths": ("docs/readme.md",),
    },
    "an edit that is called thinking": {"kind": "think", "evident": ("edit",)},
    "a kind that does not exist": {"kind": "harmless", "paths": ("src/a.py",)},
    "a kind in capitals": {"kind": "READ", "line": "rm x"},
    "a command that is not told": {"kind": "execute", "hidden": True},
    "a title instead of a command": {"kind": "execute", "title": "git status"},
    # commands
    "another program": line("rm -rf /"),
    "a second command": line("git status && rm -rf /"),
    "a second command behind a semicolon": line("git status; rm -rf /"),
    "a second command on its own line": line("git status\nrm -rf /"),
    "a second command in the background": line("git status & rm -rf /"),
    "a second command if the first fails": line("git status || rm -rf /"),
    "a pipe": line("git status | sh"),
    "a command in a command": line("git status $(rm -rf /)"),
    "a command in quotes": line('git status "$(rm -rf /)"'),
    "a command in backticks": line("git status `rm -rf /`"),
    "a command as a file": line("git status <(rm -rf /)"),
    "a command in a default": line("git status ${X:-$(rm -rf /)}"),
    "a redirection": line("echo evil > .git/hooks/pre-commit"),
    "a redirection without space": line("echo evil>>.bashrc"),
    "a redirection to a number with letters": line("echo evil >&2x"),
    "a redirection by descriptor": line("echo evil 3<>x"),
    "a here-document": line("git status <<X\n$(rm -rf /)\nX"),
    "a variable before the command": line("PATH=/evil git status"),
    "a variable on its own": line("PATH=/evil; git status"),
    "an alias": line("alias git=rm; git status"),
    "a function": line("git() { rm -rf /; }; git status"),
    "a loop": line("for x in 1; do git status; done"),
    "an open quote": line("git status 'x"),
    "another folder's program of that name": line("/evil/git status"),
    "a program of that name here": line("./git status"),
    "a program by dots": argv("../git", "status"),
    "words in one word": argv("git status"),
    "a name in capitals": argv("GIT", "status"),
    "a name in other letters": argv("ｇｉｔ", "status"),
    "a name with a space": argv("git ", "status"),
    "an option of git that runs programs": argv("git", "-c", "alias.x=!rm -rf /", "x"),
    "an option of git in one word": argv("git", "-calias.x=!rm", "x"),
    "a pager of git": argv("git", "-c", "core.pager=rm -rf /", "log"),
    "a subcommand of git that runs programs": argv("git", "submodule", "foreach", "rm -rf /"),
    "a rebase that runs programs": argv("git", "rebase", "--exec", "rm -rf /", "HEAD~1"),
    "a bisection that runs programs": argv("git", "bisect", "run", "rm", "-rf", "/"),
    "a transport of git that runs programs": argv("git", "fetch", "ext::sh -c rm"),
    "another program at the far end": argv("git", "fetch", "--upload-pack=rm -rf /", "."),
    "settings of git": argv("git", "config", "alias.status", "!rm -rf /"),
    "another repository": argv("git", "--git-dir=/evil/.git", "status"),
    "another repository by folder": argv("git", "-C", "/evil", "status"),
    "an environment beside the command": argv("git", "status", tainted=True),
    "no words": argv(),
    "a shell": argv("sh", "-c", "git status"),
    "an environment in front": argv("env", "X=1", "git", "status"),
    "more words than the pattern has": argv("cat", "src/a.py", ".env"),
    "a star where a word is": line("cat src/*"),
    "a command outside of the workspace": argv("git", "status", paths=("/etc",)),
    "a command in another folder": argv("git", "status", cwd="/etc"),
    "an option that is cut short": argv("git", "grep", "--open-files=rm -rf /", "x"),
    "a file that git writes": argv("git", "diff", "--output=.git/hooks/pre-commit"),
    "a command longer than anybody reads": line("git status " + "x" * 30_000),
}


# Allowed: commands that read, with any arguments.
READING = Policy(
    rules=(
        Rule(
            action="allow",
            commands=(
                *("git log *", "git show *", "git diff *", "git grep *", "git archive *"),
                *("git cat-file *", "find *", "fd *", "sort *", "sed *", "tar -tf *", "tar tf *"),
                *("rg *", "awk *", "tree *", "uniq *", "less *", "man *", "curl *", "file *"),
                *("test *", "printf *", "bat *", "uv run *", "sudo git log *", "npm run *", "*"),
            ),
        ),
    )
)

TO_MAKE_A_READER_WRITE_OR_RUN: dict[str, dict[str, Any]] = {
    **hidden("cat src/a.py", "touch x"),
    "an option that nobody knows": argv("git", "log", "--unheard-of"),
    "an option of a program that nobody knows": argv("tool", "-x"),
    "an option behind the end of options": argv("rg", "x", "--", "--pre=rm"),
    "a file name behind a value that looks like an end": line("rg -e -- *"),
    "a program that checks signatures": argv("git", "log", "--format=%G?"),
    "a program that pages": argv("diff", "-l", "a", "b"),
    "a program that unpacks": argv("rg", "-z", "x"),
    "an option of what another program runs": argv("sudo", "git", "log", "--unheard-of"),
    "an option of the program that runs another": argv("sudo", "-x", "git", "log"),
    "a program for differences": argv("git", "log", "-p", "--ext-diff"),
    "a program for differences, cut short": argv("git", "show", "--ext"),
    "a program that makes text of files": argv("git", "show", "--textconv", "HEAD:x"),
    "filters of git": argv("git", "cat-file", "--filters", "HEAD:x"),
    "a file that git log writes": argv("git", "log", "-p", "--output=.git/hooks/pre-commit"),
    "a file that git log writes, in two words": argv("git", "log", "--output", "x"),
    "a file that git log writes, cut short": argv("git", "log", "--outpu=x"),
    "an archive in a file": argv("git", "archive", "-ox.tar", "HEAD"),
    "settings before the subcommand": argv("git", "-c", "core.pager=rm", "log"),
    "a pager of git grep": argv("git", "grep", "-Orm", "x"),
    "a pager of git grep among other letters": argv("git", "grep", "-nOrm", "x"),
    "a pager of git grep by name": argv("git", "grep", "--open-files-in-pager=rm", "x"),
    "a file name that is an option of git": line("git log *"),
    "an option of git out of a variable": line("git log $X"),
    "behind sudo": argv("sudo", "git", "log", "--output=x"),
    "find that runs": argv("find", ".", "-exec", "rm", "{}", "+"),
    "find that runs in folders": argv("find", ".", "-execdir", "rm", "{}", ";"),
    "find that deletes": argv("find", ".", "-delete"),
    "find that prints into a file": argv("find", ".", "-fprint", "x"),
    "find that prints into a file with a format": argv("find", ".", "-fprintf", "x", "%p"),
    "a file name that is an option of find": line("find * -name x"),
    "fd that runs": argv("fd", "-x", "rm"),
    "fd that runs, among other letters": argv("fd", "-HIx", "rm"),
    "sort into a file": argv("sort", "x", "-o", ".env"),
    "sort into a file, among other letters": argv("sort", "-ruo", ".env", "x"),
    "sort into a file, cut short": argv("sort", "--o=.env", "x"),
    "sort with a program": argv("sort", "-S1", "--compress-prog=rm", "x"),
    "sed in place": argv("sed", "-i", "s/a/b/", "x"),
    "sed in place, among other letters": argv("sed", "-n", "1p", "-Ei", "x"),
    "sed that writes": argv("sed", "-n", "w .env", "x"),
    "sed that writes behind a harmless script": argv("sed", "-n", "1p", "-e", "w .env", "x"),
    "sed that runs": argv("sed", "1e rm x", "y"),
    "tar with a program": argv("tar", "-tf", "x", "--to-command=rm"),
    "tar with another program": argv("tar", "-tf", "x", "-I", "rm"),
    "tar with a program in the old way": argv("tar", "tf", "x", "--use-compress-program", "rm"),
    "rg with a program": argv("rg", "--pre", "rm", "x"),
    "rg with a program for a name": argv("rg", "--hostname-bin=rm", "x"),
    "awk that runs": argv("awk", 'BEGIN { system("rm x") }'),
    "awk with a pipe": argv("awk", 'BEGIN { print "x" | "sh" }'),
    "awk that reads a command": argv("awk", 'BEGIN { "rm x" | getline }'),
    "awk that writes": argv("awk", '{ print > ".env" }', "x"),
    "awk with a script in a file": argv("awk", "-f", "x.awk"),
    "awk with a call by name": argv("gawk", 'BEGIN { f = "sys" "tem"; @f("rm x") }'),
    "tree into a file": argv("tree", "-ao", ".env"),
    "uniq into a file": argv("uniq", "x", ".env"),
    "a pager that runs": argv("less", "+!rm x", "y"),
    "a pager that is run": argv("man", "-Prm", "ls"),
    "another pager that is run": argv("bat", "--pager=rm", "x"),
    "a download into a file": argv("curl", "-sSLo", ".env", "https://x"),
    "settings of a download": argv("curl", "-Kx"),
    "a compiled file": argv("file", "-bC", "-m", "x"),
    "a test that runs": line("test -v 'a[$(rm x)]'"),
    "a print that runs": line("printf -v 'a[$(rm x)]' y"),
    "a print that changes the path": line("printf -v PATH %s /evil"),
    "xargs behind a reader": line("find . -name x | xargs rm"),
    "an environment before a reader": argv("env", "GIT_EXTERNAL_DIFF=rm", "git", "diff"),
    "a settings file of a shell of npm": argv("npm", "run", "x", "--script-shell=rm"),
}


TO_GET_AROUND_A_DENIAL: dict[str, dict[str, Any]] = {
    **hidden("git status", "rm x"),
    "rm behind a word of zsh": line("noglob rm x"),
    "rm behind a word of fish": argv("fish", "-c", "and rm x"),
    "rm as a job": line("jobs -x rm x"),
    "rm behind an element of an array": line("a[b c]=d rm x"),
    # paths
    "as it is": edit(".env"),
    "with a dot": edit("./.env"),
    "with dots": edit("src/../.env"),
    "in another case": edit(".ENV"),
    "in other letters": edit(".ｅｎｖ"),
    "with a slash": edit(".env/"),
    "with two slashes": edit("secrets//key"),
    "with a dot at the end": edit(".env."),
    "with a space at the end": edit(".env "),
    "with a stream": edit(".env::$DATA"),
    "over a link to it": edit("src/env"),
    "over two links to it": edit("src/chain"),
    "over a link to its folder": edit("docs/up/key"),
    "by the real name of a link": edit("target/a"),
    "by the link itself": edit("link/a"),
    "as an address": edit("file://{workspace}/.env"),
    "absolutely": edit("{workspace}/.env"),
    "by the home folder": edit("~/.ssh/id_rsa"),
    "from another folder": edit("key", cwd="secrets"),
    "among others": edit("src/a.py", "docs/x", "secrets/key"),
    "without saying which": edit(),
    "by another process": edit("/proc/self/cwd/.env"),
    "the folder around it": {"kind": "delete", "paths": ("src",)},
    "the whole workspace": {"kind": "delete", "paths": (".",)},
    "moving the folder around it": {"kind": "move", "paths": ("secrets", "public")},
    "by a command": line("cat .env"),
    "by a redirection": line("echo x > .env"),
    "by reading from it": line("wc -l < .env"),
    "by a value of an option": argv("tool", "--file=.env"),
    "by an option of one letter": argv("tool", "-f.env"),
    "from another folder by a command": line("cd secrets && cat key"),
    "from a folder nobody knows": line('cd "$X" && cat key'),
    "by a star": line("cat .e*"),
    "by a variable": line("cat $X"),
    "by quotes": line("cat .e''nv"),
    "by a backslash": line("cat .e\\nv"),
    "the folder around it by a command": line("rm_ || mv secrets public"),
    # commands
    "rm": argv("rm", "x"),
    "rm by its path": argv("/bin/rm", "x"),
    "rm by a link": argv("./bin/harmless", "x"),
    "rm in capitals": argv("RM", "x"),
    "rm as on Windows": argv("C:\\tools\\rm.exe", "x"),
    "rm in quotes": line("'r'\"m\" x"),
    "rm with a backslash": line("\\rm x"),
    "rm on two lines": line("r\\\nm x"),
    "rm behind another": line("true && rm x"),
    "rm in a subshell": line("(rm x)"),
    "rm in a group": line("{ rm x; }"),
    "rm in a condition": line("if true; then rm x; fi"),
    "rm negated": line("! rm x"),
    "rm in a command": line("echo $(rm x)"),
    "rm in a loop": line("for f in *; do rm $f; done"),
    "rm behind a comment": line("echo # nothing\nrm x"),
    "rm with a variable": line("X=1 rm x"),
    "rm out of a variable": line("$X x"),
    "rm made of a variable": line("r${X}m x"),
    "rm by a star": line("/bin/r? x"),
    "rm by braces": line("{rm,x}"),
    "rm in C quotes": line("$'\\x72m' x"),
    "rm behind env": argv("env", "X=1", "rm", "x"),
    "rm behind env in one word": argv("env", "-S", "rm x"),
    "rm behind env in one word with its option": argv("env", "-Srm x"),
    "rm behind sudo": argv("sudo", "-u", "root", "rm", "x"),
    "rm behind time": line("time -p rm x"),
    "rm behind two": argv("nohup", "nice", "-n", "10", "rm", "x"),
    "rm behind busybox": argv("busybox", "rm", "x"),
    "rm behind command": line("command rm x"),
    "rm behind xargs": line("ls | xargs rm"),
    "rm behind find": argv("find", ".", "-exec", "rm", "{}", ";"),
    "deleting by find": argv("find", ".", "-delete"),
    "rm in a shell": argv("bash", "-lc", "rm x"),
    "rm in a shell in a shell": argv("sh", "-c", "sh -c 'rm x'"),
    "rm in a script": line("echo rm x | sh"),
    "rm by eval": line("eval r''m x"),
    "rm by trap": line("trap 'rm x' EXIT"),
    "rm by Python": argv("python3", "-c", "import os; os.remove('x')"),
    "rm by Perl": argv("perl", "-e", "unlink 'x'"),
    "rm by awk": argv("awk", 'BEGIN { system("rm x") }'),
    "rm by git": argv("git", "-c", "alias.x=!rm x", "x"),
    "rm by tar": argv("tar", "cf", "x", "y", "--checkpoint-action=exec=rm x"),
    "rm by ssh": argv("ssh", "localhost", "rm", "x"),
    "rm in a container": argv("docker", "run", "-v", "/:/x", "image", "rm", "x"),
    "rm by uv": argv("uv", "run", "rm", "x"),
    "rm by npx": argv("npx", "-c", "rm x"),
    "rm that is called a reading": {"kind": "read", "argv": ("rm", "x")},
    "rm that is not told": {"kind": "execute", "hidden": True},
    "pushing": argv("git", "push"),
    "pushing with force": argv("git", "push", "--force"),
    "pushing behind an option": argv("git", "--no-pager", "push"),
    "pushing from a folder": argv("git", "-C", ".", "push"),
    "pushing behind many options": argv("git", "-C", ".", "--no-pager", "push", "origin"),
    "pushing by a variable": line("git $X"),
    "pushing in quotes": line("git 'pu'sh"),
    "pushing by xargs": line("echo push | xargs git"),
    "pushing by an alias": argv("git", "-c", "alias.p=push", "p"),
}


def act(workspace: Path, parts: dict[str, Any]) -> Act:
    told = dict(parts)
    for name in ("paths", "argv"):
        if name in told:
            told[name] = tuple(each.replace("{workspace}", str(workspace)) for each in told[name])
    if "cwd" in told:
        told["cwd"] = told["cwd"].replace("{workspace}", str(workspace))
    return Act(workspace=str(workspace), peer="codex", role="execute", **told)


def verdicts(policy: Policy, workspace: Path, table: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the verdict for each attempt, by name. One test covers a whole table, because checking
    for leftovers takes longer than the table."""
    told = {name: judge(policy, act(workspace, parts)) for name, parts in table.items()}
    return {name: f"{each.action} by {each.by}" for name, each in told.items()}


def but(found: dict[str, str], *expected: str) -> dict[str, str]:
    """Return the attempts with an unexpected verdict."""
    return {name: verdict for name, verdict in found.items() if verdict not in expected}


def test_an_allowance_cannot_be_widened(workspace: Path) -> None:
    assert but(verdicts(NARROW, workspace, TO_WIDEN_AN_ALLOWANCE), "deny by preset") == {}


def test_an_allowed_reader_cannot_be_made_to_write_or_run(workspace: Path) -> None:
    found = verdicts(READING, workspace, TO_MAKE_A_READER_WRITE_OR_RUN)
    assert but(found, "deny by preset") == {}
    claimed = {
        name: {**parts, "kind": "read"} for name, parts in TO_MAKE_A_READER_WRITE_OR_RUN.items()
    }
    assert but(verdicts(READING, workspace, claimed), "deny by preset") == {}


def test_a_denial_cannot_be_got_around(workspace: Path) -> None:
    assert but(verdicts(OPEN, workspace, TO_GET_AROUND_A_DENIAL), "deny by rule") == {}


def test_no_child_gets_what_its_parent_may_not(workspace: Path) -> None:
    child = narrowed(NARROW, Policy(preset="approve-all"))
    assert but(verdicts(child, workspace, TO_WIDEN_AN_ALLOWANCE), "deny by parent") == {}
    child = narrowed(OPEN, Policy(preset="approve-all", rules=(Rule(action="allow"),)))
    assert but(verdicts(child, workspace, TO_GET_AROUND_A_DENIAL), "deny by parent") == {}


# -- what the same policies do allow


ALLOWED: dict[str, dict[str, Any]] = {
    "an edit": edit("src/a.py"),
    "an edit by its whole path": edit("{workspace}/src/new/b.py"),
    "two edits": edit("src/a.py", "src/b/c.py"),
    "dots that stay inside": edit("src/kept/../a.py"),
    "a command": line("git status"),
    "a command with options": line("git status --short -b"),
    "words": argv("git", "log", "-n", "3"),
    "a folder inside": line("cd src && git status"),
    "a folder inside that is told": line("git status", cwd="{workspace}/src"),
    "the program that the rule names": line("./run fast", cwd="{workspace}"),
    "two commands": line("git status && git diff | cat src/a.py"),
    "quotes": line("echo 'a; rm -rf /' \"b && c\""),
    "nothing that is written": line("pytest -q 2>/dev/null"),
    "brackets in quotes": line("echo 'fix (a)' \"b or c\" '$HOME'"),
    "a file behind the end of the options": line("git status -- *.py"),
    "a reading command": {"kind": "read", "line": "cat docs/readme.md | head -n 3"},
    "reading": {"kind": "read", "paths": ("/usr/include/x.h",)},
}


def test_what_is_meant_to_be_allowed_is(workspace: Path) -> None:
    found = verdicts(NARROW, workspace, ALLOWED)
    assert but(found, "allow by rule", "allow by preset") == {}


READ: dict[str, dict[str, Any]] = {
    "a history": line("git log --no-ext-diff -n 3 --stat -- *.py"),
    "a search by git": argv("git", "grep", "-n", "-e", "O", "x"),
    "a search for files": argv("find", ".", "-xdev", "-name", "*.py", "-newer", "x"),
    "another search for files": argv("fd", "-e", "py", "x"),
    "a search": argv("rg", "--pretty", "-n", "x"),
    "sorting": line("git log --format=%an | sort -u -t o -k 2 | uniq -c"),
    "some lines": argv("sed", "-n", "1,20p", "src/a.py"),
    "a column": line("awk -F: '$1 >= 3 || /x/ { print $2 }' src/a.py"),
    "what is in an archive": argv("tar", "-tf", "x.tar"),
    "an answer": argv("curl", "-sSL", "-XPOST", "-H", "a: o", "https://x"),
    "a test": line("test -f src/a.py && printf '%s\n' *"),
    "what the rule runs by name": argv("uv", "run", "pytest", "tests"),
}


def test_readers_may_read(workspace: Path) -> None:
    assert but(verdicts(READING, workspace, READ), "allow by rule") == {}


NOT_DENIED: dict[str, dict[str, Any]] = {
    "another file": edit("src/a.py"),
    "a name that only begins the same": edit(".environment"),
    "a folder that only begins the same": edit("secrets-not/x"),
    "a word that only begins the same": argv("rmdir-not", "x"),
    "the word as an argument": argv("echo", "rm"),
    "the subcommand as a message": argv("git", "commit", "-m", "push"),
    "another subcommand": argv("git", "pull"),
    "tests": line("cd src && pytest -q 2>/dev/null | tail -n 20"),
    "a search": argv("find", ".", "-name", "*.py"),
    "sorting into a file": argv("sort", "-o", "x", "y"),
    "deleting another file": {"kind": "delete", "paths": ("src/a.py",)},
    "fetching": {"kind": "fetch"},
}


def test_what_is_not_meant_is_not_denied(workspace: Path) -> None:
    assert but(verdicts(OPEN, workspace, NOT_DENIED), "allow by preset") == {}


def test_the_table_is_long_enough() -> None:
    assert len(TO_WIDEN_AN_ALLOWANCE) + len(TO_GET_AROUND_A_DENIAL) >= 60


def test_a_workspace_with_a_star_in_its_name_is_not_a_pattern(tmp_path: Path) -> None:
    for name in ("w*", "wide"):
        (tmp_path / name / "src").mkdir(parents=True)
    told = Act(kind="edit", paths=(str(tmp_path / "wide/src/a"),), workspace=str(tmp_path / "w*"))
    assert judge(NARROW, told).action == "deny"
    own = Act(kind="edit", paths=(str(tmp_path / "w*/src/a"),), workspace=str(tmp_path / "w*"))
    assert judge(NARROW, own).action == "allow"


def test_a_workspace_that_is_a_link_is_the_folder_it_leads_to(
    workspace: Path, tmp_path: Path
) -> None:
    os.symlink(workspace, tmp_path / "alias")
    for path in ("src/a.py", str(tmp_path / "alias/src/a.py"), str(workspace / "src/a.py")):
        told = Act(kind="edit", paths=(path,), workspace=str(tmp_path / "alias"))
        assert judge(NARROW, told).action == "allow", path

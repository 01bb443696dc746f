"""Command-line options that are known to be harmless, by program.

A ``*`` in a command pattern, and the test for read-only commands, accept a word that begins with
``-`` only if it is listed here: it writes no file, runs no program and does nothing beyond the
purpose of the command. An option that is missing here only causes an extra permission question.
`policy.risky_flags` has the options that are known to do more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from dragoman.policy.globs import UNKNOWN
from dragoman.policy.risky_flags import options_ended

EVERY: Final = "*"
"""In a table: all options of the program are harmless."""

_DIFF: Final = """
    -0123456789apuswbzRWDq -U= -M= -C= -B= -l= -S= -G=
    --patch --no-patch --stat --numstat --shortstat --dirstat --summary --compact-summary --raw
    --name-only --name-status --cached --staged --merge-base --color --no-color --word-diff
    --word-diff-regex --color-words --ignore-all-space --ignore-space-change --ignore-blank-lines
    --ignore-space-at-eol --unified --exit-code --quiet --check --find-renames --find-copies
    --no-renames --diff-filter --relative --no-relative --no-ext-diff --no-textconv --minimal
    --patience --histogram --diff-algorithm --function-context --full-index --binary --abbrev
    --no-prefix --inter-hunk-context
"""
_LOG: Final = f"""
    {_DIFF} -iEFPcmg -n= -L=
    --oneline --graph --all --decorate --no-decorate --max-count --skip --since --after --until
    --before --author --committer --grep --all-match --invert-grep --merges --no-merges
    --first-parent --reverse --follow --format --pretty --abbrev-commit --date --branches --tags
    --remotes --not --topo-order --date-order --left-right --cherry-pick --cherry-mark --no-walk
    --full-history --simplify-by-decoration --count --regexp-ignore-case --no-abbrev-commit
"""
_TEST_RUN: Final = """
    -qv -p= -j= -F= --quiet --verbose --release --all --workspace --all-targets --all-features
    --no-default-features --features --lib --bins --bin --test --tests --example --examples --no-run
    --no-fail-fast --locked --offline --frozen --message-format --jobs --exclude --doc --package
    --color --keep-going --edition --check --tests
"""

_GREP: Final = """
    -0123456789aciEFGhHilLnoPqrRsvwxyZ -A= -B= -C= -D= -d= -e= -f= -m=
    --after-context --basic-regexp --before-context --binary-files --byte-offset --color --colour
    --context --count --dereference-recursive --directories --exclude --exclude-dir --exclude-from
    --extended-regexp --file --files-with-matches --files-without-match --fixed-strings
    --ignore-case --include --initial-tab --invert-match --label --line-buffered --line-number
    --line-regexp --max-count --no-filename --no-ignore-case --no-messages --null --null-data
    --only-matching --perl-regexp --quiet --recursive --regexp --silent --text --with-filename
    --word-regexp
"""
# Not every option: other implementations of grep run filters (`--filter`) and pagers.

TABLES: Final = {
    **dict.fromkeys(
        """
        basename cat cd cksum cmp comm cut df dirname du echo false head id ls
        md5sum nl od printf ps pwd readlink realpath seq sha1sum sha256sum sleep stat strings tail
        test tr true uname wc whereis which whoami
        """.split(),
        EVERY,
    ),
    **dict.fromkeys(("egrep", "fgrep", "grep"), _GREP),
    "awk": "-F= -v=",
    "black": "-qv -l= --check --diff --quiet --verbose --line-length",
    "cargo": _TEST_RUN,
    "curl": """
        -sSLfIigv -X= -H= -A= -m= --silent --show-error --location --fail --head --include
        --verbose --request --header --user-agent --max-time --connect-timeout --compressed
        --retry
    """,
    "date": "-uR -d= -r= -I= --utc --date --iso-8601 --rfc-3339 --rfc-email",
    "diff": """
        -0123456789abBcdeEinNpqrsStTuwyZ -U= -C= -W= -x= -I= --brief --recursive --unified
        --context --ignore-case --ignore-all-space --ignore-space-change --ignore-blank-lines
        --text --side-by-side --new-file --color --exclude --width --minimal
        --report-identical-files
    """,
    "eslint": "--quiet --max-warnings --ext --color --no-color --no-warn-ignored",
    "fd": """
        -HIaLpsigF0u1 -e= -t= -d= -E= --hidden --no-ignore --absolute-path --follow --full-path
        --case-sensitive --ignore-case --glob --fixed-strings --extension --type --max-depth
        --exclude --print0 --color
    """,
    "file": "-bikLhNn0 --brief --mime --mime-type --mime-encoding --dereference",
    "find": """
        -name -iname -path -ipath -wholename -regex -iregex -regextype -type -xtype -maxdepth
        -mindepth -newer -anewer -cnewer -newermt -mtime -mmin -atime -amin -ctime -cmin -size
        -empty -print -print0 -printf -ls -prune -quit -not -o -a -and -or -xdev -mount -follow
        -user -group -nouser -nogroup -perm -links -inum -samefile -depth -d -L -H -P -executable
        -readable -writable -true -false -daystart -noleaf
    """,
    "go": """
        -v -race -run -count -short -cover -timeout -bench -benchmem -tags -failfast -json -list
        -parallel -shuffle
    """,
    "jq": """
        -rcnsSeaCMj --raw-output --compact-output --null-input --slurp --sort-keys --arg --argjson
    """,
    "make": """
        -0123456789knsqBw -j= -l= --keep-going --dry-run --silent --quiet --jobs --always-make
        --no-print-directory --output-sync
    """,
    "mypy": """
        -v -p= -m= --strict --pretty --no-incremental --ignore-missing-imports --verbose
        --show-error-codes --no-error-summary --show-column-numbers --check-untyped-defs
    """,
    "npm": "-s -w= --silent --workspace --workspaces --if-present --depth --json --long --all",
    "pnpm": "-rs --recursive --silent --filter --if-present --depth --json --long",
    "prettier": "-cl --check --list-different --no-color",
    "pytest": """
        -qvxsl -k= -m= -r= -n= --quiet --verbose --exitfirst --maxfail --lf --last-failed --ff
        --failed-first --nf --new-first --sw --stepwise --co --collect-only --durations
        --durations-min --tb --no-header --no-summary --capture --showlocals --strict-markers
        --color --timeout --cov --no-cov --markers --fixtures --setup-plan --disable-warnings
    """,
    "pyright": "--stats --outputjson --verbose --warnings",
    "rg": """
        -0123456789aciFhHIlLnNopqsSUuvwxb -A= -B= -C= -e= -f= -g= -m= -t= -T= -d= -M= -r= -j=
        --pretty --after-context --before-context --context --count --count-matches --files --type
        --type-not --type-list --glob --iglob --hidden --no-ignore --ignore-case --smart-case
        --case-sensitive --fixed-strings --word-regexp --line-regexp --invert-match --line-number
        --no-line-number --files-with-matches --files-without-match --max-count --max-depth
        --max-columns --multiline --only-matching --json --heading --no-heading --color
        --no-config --sort --sortr --stats --trim --vimgrep --with-filename --no-filename --column
        --regexp --null --quiet --passthru --replace --text --unrestricted --no-messages --pcre2
        --threads --follow
    """,
    "ruff": """
        -qvse --quiet --verbose --silent --select --ignore --extend-select --statistics --no-cache
        --output-format --diff --check --show-files --show-settings --exit-zero --line-length
    """,
    "sed": "-n",
    "sort": """
        -bdfghiMnRrVcCmsuz -k= -S= -t= --reverse --numeric-sort --unique --key --field-separator
        --ignore-case --human-numeric-sort --version-sort --general-numeric-sort --stable --check
        --zero-terminated --ignore-leading-blanks --dictionary-order
    """,
    "tar": "-tvzjJxkpO -f= --list --verbose --gzip --bzip2 --xz --file --to-stdout",
    "tree": "-adflisphuDFCnrtUvJX -L= -I= -P= --dirsfirst --noreport --gitignore --prune",
    "tsc": "--noEmit --pretty --strict --listFiles --showConfig --skipLibCheck",
    "uniq": "-cdDiuz -f= -s= -w= --count --repeated --unique --ignore-case",
    "git": "-P --no-pager --no-optional-locks --literal-pathspecs --version",
    "git add": "-AuvnN --all --update --verbose --dry-run --intent-to-add",
    "git blame": """
        -wltsepcb -L= -M= -C= --porcelain --line-porcelain --since --date --reverse --first-parent
        --show-name --show-number --show-email --root --ignore-rev
    """,
    "git branch": """
        -arvl --list --all --remotes --verbose --show-current --merged --no-merged --contains
        --no-contains --points-at --sort --format --column --no-column --color --no-color
    """,
    "git cat-file": "-ptes --batch --batch-check --batch-all-objects",
    "git checkout": "-qdt -b= --quiet --detach --track --no-track",
    "git cherry-pick": "-xn -m= --abort --continue --skip --no-commit --mainline",
    "git clone": """
        -qvn -b= --quiet --verbose --no-checkout --branch --depth --single-branch --no-tags
        --progress
    """,
    "git commit": """
        -asvq -m= -F= --message --all --signoff --verbose --quiet --amend --no-edit --allow-empty
        --file --author --date --dry-run --fixup --squash --no-gpg-sign --short --porcelain
    """,
    "git config": """
        -lz --get --get-all --get-regexp --list --global --system --local --worktree --show-origin
        --show-scope --name-only --null
    """,
    "git describe": EVERY,
    "git diff": _DIFF,
    "git fetch": """
        -patvqn -j= --prune --all --tags --verbose --quiet --dry-run --depth --no-tags --progress
        --jobs
    """,
    "git for-each-ref": "--count --sort --format --points-at --merged --contains --no-contains",
    "git grep": """
        -0123456789niIlLcwvEFPGhHoqzWp -e= -f= -A= -B= -C= -m= --name-only --files-with-matches
        --line-number --count --ignore-case --word-regexp --cached --untracked --heading --break
        --and --or --not --all-match --max-depth --column --show-function --function-context
        --only-matching --fixed-strings --extended-regexp --perl-regexp --invert-match --color
        --no-color
    """,
    "git log": _LOG,
    "git ls-files": EVERY,
    "git ls-tree": EVERY,
    "git merge": """
        -qvn -m= --no-ff --ff --ff-only --abort --continue --quit --no-commit --squash --no-edit
        --stat --quiet --verbose
    """,
    "git merge-base": EVERY,
    "git pull": """
        -qvr --rebase --no-rebase --ff-only --ff --no-ff --prune --tags --quiet --verbose
        --autostash --no-edit --dry-run --all
    """,
    "git push": """
        -unvq --set-upstream --tags --follow-tags --dry-run --verbose --quiet --porcelain
        --progress --atomic
    """,
    "git range-diff": _DIFF,
    "git rebase": """
        -qv --abort --continue --skip --quit --onto --autostash --quiet --verbose --stat
    """,
    "git reflog": _LOG,
    "git remote": "-v --verbose --push --all",
    "git restore": "-SWq -s= --staged --worktree --source --quiet",
    "git rev-list": f"{_LOG} --objects --no-object-names --disk-usage",
    "git rev-parse": EVERY,
    "git shortlog": """
        -snec --summary --numbered --email --committer --group --format --since --until
        --no-merges --all
    """,
    "git show": _LOG,
    "git show-ref": EVERY,
    "git stash": """
        -ukqp -m= --include-untracked --keep-index --message --quiet --stat --patch --name-only
        --name-status
    """,
    "git status": """
        -sbvz -u= --short --branch --porcelain --long --verbose --untracked-files --ignored
        --ignore-submodules --column --no-column --ahead-behind --no-ahead-behind --renames
        --no-renames --find-renames --show-stash --null
    """,
    "git switch": "-dqt -c= --create --detach --quiet --track --no-track",
    "git tag": "-ln --list --sort --contains --no-contains --points-at --merged --format --column",
    "git worktree": "-v --porcelain --verbose",
}
for _name, _same in (("fdfind", "fd"), ("gawk", "awk"), ("mawk", "awk"), ("gmake", "make")):
    TABLES[_name] = TABLES[_same]


NOT_A_RESPONSE_FILE: Final = frozenset({"git", "npm", "pnpm"})
"""Programs for which a leading `@` in a word does not mean a file with more options."""


class Table(NamedTuple):
    """The harmless options of a program or of one of its subcommands."""

    every: bool
    letters: str
    """One-letter options, which may be combined in a word."""
    valued: str
    """One-letter options that take the rest of the word as their value."""
    names: frozenset[str]
    """Long options, up to an equals sign. They are never abbreviated."""


@cache
def table(key: str) -> Table | None:
    """Return the harmless options of a program or subcommand, or None if they are not known. `key`
    is a name such as ``git`` or ``git log``."""
    if key not in TABLES:
        return None
    words = TABLES[key].split()
    # Programs with long options after a single dash have no combined letters.
    long = key in ("find", "go")
    short = [] if long else [word for word in words if word[:1] == "-" and word[:2] != "--"]
    return Table(
        every=words == [EVERY],
        letters="".join(word[1:] for word in short if word[-1] != "="),
        valued="".join(word[1] for word in short if word[-1] == "="),
        names=frozenset(word for word in words if long or word[:2] == "--"),
    )


def has_table(name: str) -> bool:
    """Return whether anything is known about the options of a program."""
    return name in TABLES


def doubtful(name: str, words: Sequence[str]) -> Iterator[int]:
    """Yield the indices of words that may be options and are not known to be harmless.

    `name` is the plain name of the program, which is the first word.
    """
    behind = _subcommand_place(name, words)
    for place, word in enumerate(words):
        if not place or word in ("-", "--"):
            continue
        key = name if behind is None or place < behind else f"{name} {words[behind]}"
        if word.startswith(UNKNOWN):
            # It may be a file name that begins with a dash, unless `--` has ended the options.
            found = table(key)
            if found is None or not (found.every or options_ended(words[:place])):
                yield place
        elif name == "tar" and place == 1 and word[0:1] != "-":
            # The first argument of tar may contain options without a dash.
            if not _is_harmless(f"-{word}", table(key)):
                yield place
        elif word.startswith("-") and not _is_harmless(word, table(key)):
            yield place
        elif word.startswith("@") and not _takes_names(name, table(key)):
            yield place


def _takes_names(name: str, known: Table | None) -> bool:
    """Return whether a leading `@` in a word certainly does not mean a file with more options."""
    return name in NOT_A_RESPONSE_FILE or (known is not None and known.every)


def _subcommand_place(name: str, words: Sequence[str]) -> int | None:
    if name != "git":
        return None
    return next((at for at, word in enumerate(words) if at and word[:1] != "-"), None)


def _is_harmless(word: str, known: Table | None) -> bool:
    if known is None:
        return False
    option = word.partition("=")[0]
    if known.every or option in known.names:
        return UNKNOWN not in option
    if word.startswith("--"):
        return False
    for letter in word[1:]:
        if letter in known.valued:
            return True
        if letter not in known.letters:
            return False
    return True

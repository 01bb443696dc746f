"""Evaluate a permission policy: compute the verdict (allow, ask, escalate, deny) for an act.

The strictest matching rule applies; the preset decides if no rule matches. A rule that allows needs
a certain match, a rule that restricts only a possible one, so that an agent gains nothing by
sending incomplete or false data. This module never asks the caller; `policy.approver` does.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Final

from msgspec import structs

from dragoman.client.permissions import READING
from dragoman.events.words import tool_kind
from dragoman.policy import command_patterns as patterns
from dragoman.policy import path_patterns
from dragoman.policy.command_expansion import (
    PATH_MOVERS,
    ProgramRuns,
    name_of,
    only_reads,
    running,
    spelled,
    unfolded,
)
from dragoman.policy.globs import UNKNOWN
from dragoman.policy.path_patterns import ResolvedPaths
from dragoman.policy.protected_paths import foreign_repository, names, protected, spelled_protected
from dragoman.policy.rules import STRICTNESS, Act, Action, Policy, Rule, Verdict, by_preset, words
from dragoman.policy.shell_parser import ANYTHING

FILE_KINDS: Final = frozenset({"read", "search", "edit", "delete", "move"})
"""Tool kinds that concern only files."""
MAY_CHANGE: Final = frozenset({"edit", "delete", "move", "other"})
"""Tool kinds that change files, or may: nothing is known about `other`."""
WHOLE_FOLDERS: Final = frozenset({"delete", "move"})
MOVES: Final = frozenset({"cd", "pushd", "popd", "chdir"})
"""Commands after which relative paths mean something else."""


class ActFacts:
    """An act with derived facts, computed once for all rules."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.running: ProgramRuns = running(
            act.argv, act.line, hidden=act.hidden, tainted=act.tainted
        )
        self.commands = self.running.every
        self.written = self.running.writes

    @cached_property
    def root(self) -> str:
        return path_patterns.root_of(self.act.workspace or os.curdir)

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Directories that relative paths may be resolved against."""
        return (self.root,) if self.act.cwd is None else (self.root, self.cwd)

    @cached_property
    def command_folders(self) -> tuple[str, ...] | None:
        """Directories that relative words of the commands may be resolved against; None if
        unknown."""
        folders = list(self.folders)
        moves = [each.words for each in self.commands if name_of(each.words[0]) in MOVES]
        for move in moves:
            if len(move) != 2 or UNKNOWN in move[1] or move[1][:1] in "-~" or len(folders) > 16:
                return None
            folders += [os.path.join(folder, move[1]) for folder in folders]
        return tuple(folders)

    @cached_property
    def cwd(self) -> str:
        return os.path.join(self.root, self.act.cwd or "")

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the act, both claimed by the agent and visible in the request."""
        claimed = tool_kind(self.act.kind).value
        kinds = {claimed, *self.act.evident}
        if self.act.runs and not (claimed in READING and self.reads):
            kinds.add("execute")
        if self.written:
            kinds.add("edit")
        return frozenset(kinds)

    @cached_property
    def reads(self) -> bool:
        return not self.written and only_reads(self.commands)

    @cached_property
    def places(self) -> tuple[ResolvedPaths | None, ...]:
        """Where each path in the request may resolve to."""
        found = [self._word(path) for path in dict.fromkeys(self.written)]
        found += [
            path_patterns.places_of(path, self.folders) for path in dict.fromkeys(self.act.paths)
        ]
        return tuple(found)

    @cached_property
    def protected(self) -> tuple[str, ...]:
        """The protected files that the act may write."""
        if not self.kinds & MAY_CHANGE:
            return ()
        found = [(path, path_patterns.places_of(path, self.folders)) for path in self.act.paths]
        # A redirection to a plain file is visible; what else a command writes is unknown.
        found += [(path, self._word(path)) for path in self.written]
        inside = []
        for path, each in found:
            if each is not None:
                inside.append(protected(each, self.root))
            elif spelled_protected(path):
                inside.append(path)
        return tuple(dict.fromkeys(path for path in inside if path is not None))

    @cached_property
    def elsewhere(self) -> str:
        """Why a command may run a different program than its words say, because of the directory
        where it runs; empty if it may not."""
        told = [command.words[0] for command in self.running.told]
        relative = [word for word in told if "/" in word and not word.startswith("/")]
        uses_git = any(name_of(word) == "git" for word in told)
        if not relative and not uses_git:
            return ""
        folders = {path_patterns.root_of(folder) for folder in self.command_folders or ()}
        if relative and folders != {self.root}:
            return f"`{relative[0]}` may be another program in the directory where it would run"
        if uses_git and not folders:
            return "the directory in which git would run is unknown"
        for folder in sorted(folders if uses_git else ()):
            if foreign_repository(folder, self.root):
                return (
                    f"git may run programs named in the configuration of a repository in {folder}"
                )
        return ""

    @cached_property
    def words(self) -> tuple[tuple[ResolvedPaths | None, bool], ...]:
        """Where each word of a command may lead as a path (None if unknown), and whether the
        command can change whole directories."""
        found: dict[tuple[str, bool], None] = {}
        for command in self.commands:
            moves = name_of(command.words[0]) in PATH_MOVERS
            for word in command.words:
                for spelling in {word, word.partition("=")[2], word.partition(":")[2]} - {""}:
                    found[spelling, moves] = None
                if word[:1] == "-" and len(word) > 2:
                    # A one-letter option may be followed directly by its value.
                    found[word[2:], moves] = None
        return tuple((self._word(word), moves) for word, moves in found)

    def _word(self, word: str) -> ResolvedPaths | None:
        folders = self.command_folders
        if folders is None:
            if not word.startswith("/"):
                return None
            folders = self.folders
        return path_patterns.places_of(word, folders)


def changes_protected(act: Act) -> bool:
    """Return whether an act may write a protected file."""
    return bool(ActFacts(act).protected)


def judge(policy: Policy, act: Act) -> Verdict:
    """Return the strictest verdict among those of the policy and of every parent policy that limits
    it."""
    facts = ActFacts(act)
    found = _one(policy, facts)
    for ceiling in policy.ceilings:
        above = judge(ceiling, act) if ceiling.ceilings else _one(ceiling, facts)
        if STRICTNESS[above.action] > STRICTNESS[found.action]:
            why = f"the delegating agent may not do this either: {above.why}"
            found = structs.replace(above, by="parent", why=why)
    return found


def _one(policy: Policy, facts: ActFacts) -> Verdict:
    verdict = _strictest(policy.rules, facts, limit=False)
    if verdict is None:
        action = by_preset(policy.preset, facts.kinds)
        verdict = Verdict(
            action=action, rule=policy.preset, why=_by_preset(policy, facts, action), by="preset"
        )
    if verdict.action == "allow":
        verdict = _protected(policy, facts) or verdict
    limit = _strictest(policy.limits, facts, limit=True)
    if limit is not None and STRICTNESS[limit.action] > STRICTNESS[verdict.action]:
        return limit
    return verdict


def _protected(policy: Policy, facts: ActFacts) -> Verdict | None:
    """Return a verdict to ask if the act may write a protected file that no matching rule allows by
    name. Otherwise None."""
    for path in facts.protected:
        if any(
            rule.action == "allow"
            and names(rule.paths, path, facts.root)
            and surely_fits(rule, facts) is not None
            for rule in policy.rules
        ):
            continue
        return Verdict(
            action="ask",
            rule="ask for protected files",
            why=f"{path} is never written without a question, unless a rule names it",
            by="protected",
        )
    return None


def _by_preset(policy: Policy, facts: ActFacts, action: Action) -> str:
    kinds = " and ".join(sorted(facts.kinds))
    fits = "no rule matches" if policy.rules else "there are no rules"
    if facts.running.problem:
        fits = f"the line counts as an unknown command: {facts.running.problem}"
    elif policy.rules and facts.elsewhere:
        fits = f"no rule matches: {facts.elsewhere}"
    for rule in policy.rules:
        for command in facts.running.told if rule.action == "allow" else ():
            word = patterns.unnamed(rule.commands, command)
            if word is not None:
                # Name the word, so that the author of the rule can find the cause.
                fits = (
                    f"no rule matches: {spelled((word,))} in `{spelled(command.words)}` is not "
                    "known to be harmless, and no rule for this command names it"
                )
    return f"{fits}, and `permissions = {policy.preset!r}` says {action} for {kinds}"


def _strictest(rules: tuple[Rule, ...], facts: ActFacts, *, limit: bool) -> Verdict | None:
    best: tuple[int, Rule, str] | None = None
    for rule in rules:
        if best is not None and STRICTNESS[rule.action] <= best[0]:
            continue
        why = may_fit(rule, facts) if rule.restricts else surely_fits(rule, facts)
        if why is not None:
            best = (STRICTNESS[rule.action], rule, why)
    if best is None:
        return None
    _, rule, why = best
    return Verdict(
        action=rule.action,
        rule=str(rule),
        why=f"{rule.why} ({why})" if rule.why else why,
        by="limit" if limit else "rule",
    )


def _for_whom(rule: Rule, act: Act) -> bool:
    return (not rule.peer or act.peer in words(rule.peer)) and (
        not rule.role or act.role in words(rule.role)
    )


# -- rules that allow


def surely_fits(rule: Rule, facts: ActFacts) -> str | None:
    """Return why an allowing rule matches, or None if that is not certain."""
    if not _for_whom(rule, facts.act) or ANYTHING in facts.running.told:
        return None
    if rule.kinds:
        if not facts.kinds <= rule.kinds:
            return None
    elif rule.commands and not facts.kinds <= {"execute", *READING}:
        return None
    elif rule.paths and not facts.kinds <= FILE_KINDS:
        return None
    if rule.commands:
        return _commands_surely(rule, facts)
    if rule.paths:
        fits = not facts.commands and bool(facts.places)
        fits = fits and all(
            path_patterns.surely(rule.paths, each, facts.root) for each in facts.places
        )
        return "every path matches" if fits else None
    if not facts.kinds <= READING and not _inside(facts):
        # A rule that allows edits means those in the workspace, unless it has paths.
        return None
    return "its kind matches" if rule.kinds else "it matches everything"


def _commands_surely(rule: Rule, facts: ActFacts) -> str | None:
    if not facts.commands or facts.written or not _inside(facts) or facts.elsewhere:
        return None
    if all(patterns.surely(rule.commands, command) for command in facts.running.told):
        return "every command matches"
    return None


def _inside(facts: ActFacts) -> bool:
    """Return whether the act's paths and its directory are certainly inside the workspace."""
    named = list(facts.places)
    if facts.act.cwd is not None:
        named.append(path_patterns.places_of(facts.cwd, (facts.root,)))
    return all(
        each is not None and all(path_patterns.is_inside(place, facts.root) for place in each.real)
        for each in named
    )


# -- rules that restrict


def may_fit(rule: Rule, facts: ActFacts) -> str | None:
    """Return why a restricting rule may match, or None if it cannot."""
    if not _for_whom(rule, facts.act) or (rule.kinds and not facts.kinds & rule.kinds):
        return None
    reasons = []
    if rule.commands:
        reason = _command_perhaps(rule, facts)
        if reason is None:
            return None
        reasons.append(reason)
    if rule.paths:
        reason = _path_perhaps(rule, facts)
        if reason is None:
            return None
        reasons.append(reason)
    return ", and ".join(reasons) or ("its kind matches" if rule.kinds else "it matches everything")


def _command_perhaps(rule: Rule, facts: ActFacts) -> str | None:
    if "execute" in facts.kinds and not facts.commands:
        return "it runs a command that was not reported"
    for command in facts.commands:
        if patterns.perhaps(rule.commands, command, facts.cwd):
            if command is ANYTHING:
                return _hidden(facts)
            if any(UNKNOWN in word for word in command.words):
                return f"`{spelled(command.words)}` may match"
            return f"`{spelled(command.words)}` matches"
    return None


def _hidden(facts: ActFacts) -> str:
    """Return why an act with an unknown command may match a rule."""
    for told in facts.running.told:
        if told is not ANYTHING and ANYTHING in unfolded(told):
            return f"`{spelled(told.words)}` may run a matching command"
    if facts.running.problem:
        return f"the line may run a matching command: {facts.running.problem}"
    return "it may run any command"


def _path_perhaps(rule: Rule, facts: ActFacts) -> str | None:
    whole = bool(facts.kinds & WHOLE_FOLDERS)
    for each in facts.places:
        if path_patterns.perhaps(rule.paths, each, facts.root, with_parents=whole):
            return "a path matches" if each is not None else "a path cannot be resolved"
    for each, moves in facts.words:
        if path_patterns.perhaps(rule.paths, each, facts.root, with_parents=moves):
            is_path = "is" if each is not None else "may be"
            return f"a word of the command {is_path} a matching path"
    if not facts.places and not facts.commands and facts.kinds & (FILE_KINDS | {"other"}):
        return "it does not name the files"
    return None

"""Permission flags of the command line (`--approve-all` …) and the permission prompt on a terminal.

Rules are evaluated in `policy`, answers are mapped to the agent's options in `client.permissions`.
Every denial is part of the turn's result; `cli.output` shows it.
"""

from __future__ import annotations

import asyncio
import enum
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dragoman.cli.command_loop import CommandLoop, Interrupted
from dragoman.cli.output.escape import one_line
from dragoman.cli.output.terminal import is_interactive, width_of
from dragoman.client.permissions import (
    Answer,
    Chosen,
    Decision,
    Question,
)
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.config.schema import Permissions
    from dragoman.policy import Approver, PolicySettings
    from dragoman.policy import Policy as RulesPolicy


class ApprovalMode(enum.Enum):
    """How permission requests that no rule matches are decided."""

    APPROVE_ALL = "approve-all"
    APPROVE_READS = "approve-reads"
    DENY_ALL = "deny-all"
    ASK = "ask"
    """Allow reads, ask the user about everything else."""


def policy_of(
    *, approve_all: bool, approve_reads: bool, deny_all: bool, interactive: bool, default: str = ""
) -> ApprovalMode:
    """Return the mode set by the flags, else the one in the configuration (`default`), else `ASK`.

    If the user cannot be asked (not `interactive`), `ASK` becomes `APPROVE_READS`. Raises
    `UsageError` for more than one flag.
    """
    chosen = [
        policy
        for policy, given in (
            (ApprovalMode.APPROVE_ALL, approve_all),
            (ApprovalMode.APPROVE_READS, approve_reads),
            (ApprovalMode.DENY_ALL, deny_all),
        )
        if given
    ]
    if len(chosen) > 1:
        flags = " and ".join(f"--{policy.value}" for policy in chosen)
        raise UsageError(f"{flags} cannot be combined: choose one")
    if chosen:
        return chosen[0]
    policy = ApprovalMode(default) if default else ApprovalMode.ASK
    return ApprovalMode.APPROVE_READS if policy is ApprovalMode.ASK and not interactive else policy


def permissions_of(*, approve_all: bool, approve_reads: bool, deny_all: bool) -> Permissions | None:
    """Return the preset set by the flags, or None without a flag. Raises `UsageError` for more than
    one flag."""
    if not (approve_all or approve_reads or deny_all):
        return None
    chosen: Permissions = policy_of(
        approve_all=approve_all, approve_reads=approve_reads, deny_all=deny_all, interactive=False
    ).value
    return chosen


def permit_of(
    policy: ApprovalMode,
    live: CommandLoop,
    *,
    rules: PolicySettings | None = None,
    ceilings: Sequence[RulesPolicy] = (),
    peer: str = "",
    role: str = "",
    workspace: str = "",
    titled: bool = False,
) -> Approver:
    """Return the approver for this mode and the user's rules, which asks the user if there is a
    terminal. `ceilings` are as in `whole_policy`, `titled` as in `TerminalApprover`."""
    from dragoman.policy import Approver

    return Approver(
        whole_policy(policy, rules, ceilings),
        peer=peer,
        role=role,
        workspace=workspace,
        caller=TerminalApprover(live, titled=titled) if is_interactive() else None,
        ask_before_preset=policy is ApprovalMode.ASK,
        titled=titled,
    )


def whole_policy(
    policy: ApprovalMode, rules: PolicySettings | None, ceilings: Sequence[RulesPolicy] = ()
) -> RulesPolicy:
    """Return the policy of a command: the rules from the settings, and the mode for what no rule
    matches.

    `ceilings` are the policies of the agents that delegated this work: for each request, the
    strictest policy applies.
    """
    from dragoman.policy import PolicySettings, narrowed, of_settings

    whole = of_settings(rules or PolicySettings(), policy.value)
    for ceiling in ceilings:
        whole = narrowed(ceiling, whole)
    return whole


_KEYS: Final = {
    "allow_once": "y",
    "allow_always": "a",
    "reject_once": "n",
    "reject_always": "d",
}
"""The key to press for each kind of answer."""

_MEANINGS: Final = {
    "allow_once": "allow once",
    "allow_always": "allow always",
    "reject_once": "refuse",
    "reject_always": "refuse always",
}
"""Our label for each kind of answer. Agents choose their own option names."""

LABEL_WIDTH: Final = 60
"""Maximum length of the agent's own name for an option, in characters."""

MAX_CHOICES: Final = 9
"""Maximum number of options shown, except for the first one of each kind: more would push the
question off the screen."""


class TerminalApprover:
    """Asks the user for permission at the terminal, one question at a time. Ctrl-C cancels the
    turn."""

    def __init__(self, live: CommandLoop, *, titled: bool = False) -> None:
        """`titled`: whether the agent writes a command as the title of its question."""
        self._live = live
        self._titled = titled
        self._turn = asyncio.Lock()

    async def __call__(self, question: Question) -> Decision:
        async with self._turn:
            return await self._ask(question)

    async def _ask(self, question: Question) -> Decision:
        # Imported here: most turns ask nothing.
        from dragoman.cli.output import questions

        choices = choices_of(question)
        lines = questions.permission(question, titled=self._titled)
        answers = [f"  {key}  {label}" for key, (label, _) in choices.items()]
        rows = questions.rows(lines, answers, width=width_of(sys.stderr))
        shown = "\n".join(rows) + "\n"
        keys = "/".join(choices)
        wrong = ""
        while True:
            try:
                # After an invalid answer, the whole question is shown again: held output may have
                # come between.
                line = await self._live.line(f"allow? [{keys}] ", question=wrong + shown)
            except Interrupted:
                # As everywhere in a turn, Ctrl-C cancels the turn.
                self._live.press()
                # Lets the cancellation be sent before the answer. An agent that is answered first
                # may end its turn normally, and the command would look successful.
                await asyncio.sleep(0)
                return Answer.CANCEL
            if line is None:
                return Answer.REJECT_ONCE
            word = line.strip().lower()
            word = {"yes": "y", "no": "n", "always": "a"}.get(word, word)
            if word in choices:
                return choices[word][1]
            wrong = f"answer with one of {keys}\n" if word else ""


def choices_of(question: Question) -> dict[str, tuple[str, Decision]]:
    """Return the label and decision of each possible answer, by the key to press: the agent's own
    options, the first of each kind with a letter and the others with a number.

    There is always one that denies.
    """
    choices: dict[str, tuple[str, Decision]] = {}
    for option in question.options:
        kind = str(option.kind)
        if kind not in _KEYS or (len(choices) >= MAX_CHOICES and _KEYS[kind] in choices):
            continue
        key = _KEYS[kind] if _KEYS[kind] not in choices else str(len(choices) + 1)
        name = one_line(getattr(option, "name", ""), width=LABEL_WIDTH)
        label = f"{_MEANINGS[kind]} ({name!r})" if name else _MEANINGS[kind]
        choices[key] = (label, Chosen(option.option_id, Answer(kind)))
    if not any(not decision.allows for _, decision in choices.values()):
        choices["n"] = ("refuse", Answer.REJECT_ONCE)
    return choices

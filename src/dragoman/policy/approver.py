"""Answer the permission requests of one session and record the reason for each answer.

Order: a final verdict of the policy, then an earlier "always" of this session, then the caller's
answer (bounded by a timeout), then a refusal. "Always" is stored here and sent to the agent as
"once": an agent that receives "always" stops asking, and the rules would no longer be checked.
`guard` applies the same order to work that dragoman does for the agent, such as a file write.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.client.permissions import SHOWN_SIZE, Answer, Chosen, Decision, Permit, Question
from dragoman.errors import DragomanError
from dragoman.policy.rules import Act, Policy, Verdict, allows_everything

if TYPE_CHECKING:
    from dragoman.policy.path_patterns import ResolvedPaths

log: Final = logging.getLogger("dragoman.policy")

ANSWER_TIMEOUT: Final = 1800.0
"""Seconds to wait for the caller's answer. A person may be away for a while; a turn has its own
limits as well."""

MAX_WORDS: Final = 100
"""Maximum number of words of a command that a ruling keeps."""

MAX_RULINGS: Final = 10_000
"""Maximum number of answers kept for the record. If there are more, the older half is dropped."""

NO_ONE: Final = "there was no one to ask"
"""Why a question got no answer, if there is neither a caller nor another surface."""

SHELLS: Final = frozenset(
    (f"{folder}{shell}", flag)
    for folder in ("", "/bin/", "/usr/bin/")
    for shell in ("sh", "bash", "zsh")
    for flag in ("-c", "-lc")
)
"""Ways of passing a command line to a shell: program and option."""


class Ruling(Struct, frozen=True):
    """One answered permission request: the act, the policy's verdict, and the answer."""

    tool_call_id: str
    act: Act
    verdict: Verdict
    allowed: bool
    by: str
    """Who decided: ``policy``, ``caller``, or ``grant`` for an earlier answer of the caller that
    applies to the whole session."""
    why: str


class _Asked:
    """A question that waits in a task, and the answer of another surface that ends the wait."""

    __slots__ = ("_task", "answer")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self.answer: Decision | None = None

    def settle(self, answer: Decision) -> bool:
        """Settle the question with another surface's answer.

        Returns False if it was already settled.
        """
        if self.answer is not None:
            return False
        self.answer = answer
        self._task.cancel()
        return True


Inbox: TypeAlias = Callable[
    [Question, Permit | None, Callable[[Decision], bool]], Awaitable[Decision | None]
]
"""Asks the caller, if there is one, and shows the question to other surfaces. It gets a function to
call with another surface's answer, and returns None if there is no one to ask."""


class Approver(Struct):
    """Answers the permission requests of one session. Implements
    `dragoman.client.permissions.Permit`."""

    policy: Policy
    peer: str
    workspace: str
    role: str = ""
    caller: Permit | None = None
    """The callback for decisions that the policy does not make; None if there is no one to ask."""
    ask_before_preset: bool = True
    """Whether to ask the caller before a refusal that comes from the preset alone."""
    answer_timeout: float | None = ANSWER_TIMEOUT
    titled: bool = False
    """Whether the peer writes a command as the title of its question."""
    inbox: Inbox | None = None
    """Other surfaces that can answer, such as the console."""
    always: dict[tuple[object, ...], bool] = field(default_factory=dict)
    """Answers given for the whole session, by the key of their act; True if they allow it."""
    rulings: list[Ruling] = field(default_factory=list)
    dropped: int = 0
    """Number of older rulings that are no longer in `rulings`."""
    _allowed: Allowed = field(default_factory=lambda: Allowed(""))
    _asked: dict[str, _Asked] = field(default_factory=dict)
    """The questions that the caller is being asked, by tool call."""

    def __post_init__(self) -> None:
        # These two belong to one approver: a changed copy must not share them.
        self._allowed = Allowed(self.workspace)
        self._asked = {}

    @property
    def unrestricted(self) -> bool:
        """Whether the policy is exactly ``approve-all``. Callers then start a peer that has its own
        sandbox with a wide one."""
        return allows_everything(self.policy)

    async def __call__(self, question: Question) -> Decision:
        act, verdict = self._judged(question)
        return await self._decide(question, act, verdict)

    def alone(self, question: Question) -> Answer:
        """Answer a question without asking anyone. The request is refused if neither the policy nor
        an earlier answer decides."""
        act, verdict = self._judged(question)
        return self._known(question, act, verdict) or self._rule(
            question, act, verdict, allowed=False
        )

    async def guard(self, question: Question) -> Decision:
        """Decide about work that dragoman does for the agent, such as a file write, when the agent
        requests it without a permission question.

        What was allowed when the agent asked for permission needs no second question. Otherwise,
        the answer is found as for a question of the agent; a permission granted here counts once,
        unless the answer is "always".
        """
        act, verdict = self._judged(question)
        if self._allowed.covers(act) and not verdict.final:
            self._allowed.spend(act, verdict)
            return Answer.ALLOW_ONCE
        answer = await self._decide(question, act, verdict, lasting=False)
        self._allowed.spend(act, verdict)
        return answer

    def guard_alone(self, question: Question) -> Answer:
        """Like `guard`, but without asking anyone."""
        act, verdict = self._judged(question)
        if not self._allowed.covers(act) or verdict.final:
            return self._known(question, act, verdict) or self._rule(
                question, act, verdict, allowed=False
            )
        self._allowed.spend(act, verdict)
        return Answer.ALLOW_ONCE

    def leaves_open(self, question: Question) -> bool:
        """Return whether a person has to be asked, because neither the policy nor an earlier answer
        decides."""
        act, verdict = self._judged(question)
        return not self._is_decided(verdict) and self._remembered(act, verdict) is None

    def remembers(self, question: Question) -> bool:
        """Return whether an earlier answer for the whole session decides the question."""
        act, verdict = self._judged(question)
        return not self._is_decided(verdict) and self._remembered(act, verdict) is not None

    def answered_elsewhere(self, tool_call_id: str, answer: Answer) -> None:
        """Settle a question that is being asked here with another surface's answer."""
        asked = self._asked.get(tool_call_id)
        if asked is not None:
            asked.settle(answer)

    def keeps_always(self, question: Question) -> bool:
        """Return whether the permission in question can be granted for the whole session."""
        act, verdict = self._judged(question)
        return _key(act) is not None and not _each_time(act, verdict)

    def keep_always(self, question: Question, *, allows: bool) -> None:
        """Remember an answer that another surface gave for the whole session, unless it cannot be
        kept, such as a permission for an act that needs a question each time."""
        act, verdict = self._judged(question)
        self._keep(act, verdict, allows=allows)

    def _keep(self, act: Act, verdict: Verdict, *, allows: bool) -> None:
        key = _key(act)
        if key is not None and not (allows and _each_time(act, verdict)):
            self.always[key] = allows

    def was_allowed(self, question: Question) -> None:
        """Record that another surface has granted the permission in question."""
        self._allowed.add(self._act(question))

    def _judged(self, question: Question) -> tuple[Act, Verdict]:
        # Not at the top: most turns ask nothing, and the command parser is slow to load.
        from dragoman.policy.evaluation import judge

        act = self._act(question)
        return act, judge(self.policy, act)

    def _act(self, question: Question) -> Act:
        from dragoman.policy.act_from_request import act_of

        return act_of(
            question,
            peer=self.peer,
            role=self.role,
            workspace=self.workspace,
            titled=self.titled,
        )

    async def _decide(
        self, question: Question, act: Act, verdict: Verdict, *, lasting: bool = True
    ) -> Decision:
        """Return the decision on a question. `lasting` says whether a permission granted here also
        covers work that dragoman does for the agent later."""
        known = self._known(question, act, verdict)
        if known is not None:
            return known
        each_time = _each_time(act, verdict)
        answer, silence = await self._ask(_without_always(question) if each_time else question)
        if answer is Answer.CANCEL:
            return answer
        if silence:
            return self._rule(question, act, verdict, allowed=False, silence=silence)
        if not isinstance(answer, Answer | Chosen):
            # A mistake in the caller's function: `client.file_guard.decided` reports the value.
            self._rule(question, act, verdict, allowed=False, by="caller", why="an invalid answer")
            return answer  # type: ignore[no-any-return]
        meant = answer.answer if isinstance(answer, Chosen) else answer
        if meant in (Answer.ALLOW_ALWAYS, Answer.REJECT_ALWAYS):
            self._keep(act, verdict, allows=meant.allows)
        self._rule(
            question,
            act,
            verdict,
            allowed=meant.allows,
            by="caller",
            why="the caller",
            lasting=lasting,
        )
        if meant is Answer.ALLOW_ALWAYS:
            return Answer.ALLOW_ONCE
        return Answer.REJECT_ONCE if meant is Answer.REJECT_ALWAYS else answer

    def _known(self, question: Question, act: Act, verdict: Verdict) -> Answer | None:
        """Return and record the answer that the policy or an earlier answer determines, or None if
        the caller has to be asked."""
        if self._is_decided(verdict):
            return self._rule(question, act, verdict, allowed=verdict.action == "allow")
        remembered = self._remembered(act, verdict)
        if remembered is None:
            return None
        why = "an earlier answer applies to the whole session"
        return self._rule(question, act, verdict, allowed=remembered, by="grant", why=why)

    def _is_decided(self, verdict: Verdict) -> bool:
        return verdict.final or (self._refused_by_preset(verdict) and not self.ask_before_preset)

    def _remembered(self, act: Act, verdict: Verdict) -> bool | None:
        """Return what an earlier "always" of this session says, or None if there is none or it does
        not apply."""
        key = _key(act)
        remembered = self.always.get(key) if key is not None else None
        return None if remembered and _each_time(act, verdict) else remembered

    def _refused_by_preset(self, verdict: Verdict) -> bool:
        return verdict.action == "deny" and verdict.by == "preset"

    async def _ask(self, question: Question) -> tuple[Any, str]:
        """Return the caller's answer, which is not checked, and an empty text; without an answer,
        None and the reason."""
        caller, inbox = self.caller, self.inbox
        if caller is None and inbox is None:
            return None, NO_ONE
        task = asyncio.current_task()
        assert task is not None
        asked = self._asked[question.tool_call_id] = _Asked(task)
        scope = asyncio.timeout(self.answer_timeout)
        try:
            async with scope:
                if inbox is not None:
                    answer = await inbox(question, caller, asked.settle)
                    return answer, NO_ONE if answer is None and caller is None else ""
                assert caller is not None
                given = caller(question)
                return (await given if inspect.isawaitable(given) else given), ""
        except asyncio.CancelledError:
            if asked.answer is None or task.uncancel():
                raise
            return asked.answer, ""
        except TimeoutError:
            if not scope.expired():
                # Not our timeout, but an error of the caller, for example of its connection.
                raise
            log.warning(
                "no answer to the question %r within %s s", question.title, self.answer_timeout
            )
            return None, f"there was no answer within {self.answer_timeout:g} s"
        except DragomanError as error:
            # The caller is gone, and the agent still needs an answer.
            log.warning("the caller did not answer the question %r: %s", question.title, error)
            return None, f"the caller did not answer: {error}"
        finally:
            if self._asked.get(question.tool_call_id) is asked:
                del self._asked[question.tool_call_id]

    def _rule(
        self,
        question: Question,
        act: Act,
        verdict: Verdict,
        *,
        allowed: bool,
        by: str = "policy",
        why: str = "",
        lasting: bool = True,
        silence: str = NO_ONE,
    ) -> Answer:
        if not allowed and by == "policy" and (verdict.action != "deny" or silence != NO_ONE):
            why = f"{silence}; {verdict.why}"
        why = why or verdict.why
        if len(self.rulings) >= MAX_RULINGS:
            self.dropped += MAX_RULINGS // 2
            del self.rulings[: MAX_RULINGS // 2]
        self.rulings.append(
            Ruling(question.tool_call_id[:SHOWN_SIZE], _kept(act), verdict, allowed, by, why)
        )
        if allowed and lasting:
            self._allowed.add(act)
        return Answer.ALLOW_ONCE if allowed else Answer.REJECT_ONCE


class Allowed:
    """What an agent was allowed to do in a session. Work that dragoman then does for the agent
    needs no second question if it is covered.

    A file that the agent may edit can be written any number of times, as an editor saves a file,
    but a protected file, or one for which the policy escalates, only once. A command runs once.
    """

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._read: set[str] = set()
        self._edited: set[str] = set()
        self._commands: set[tuple[object, ...]] = set()

    def add(self, act: Act) -> None:
        kinds = {act.kind, *act.evident}
        for path in act.paths:
            places = _places(path, _folders(act, self._workspace))
            if places is None or (act.cwd is not None and len(places.spelled) > 1):
                # A relative path in a directory other than the workspace may name one of two
                # files, and only one of them was meant.
                continue
            if "edit" in kinds:
                self._edited |= places.real
            if kinds & {"edit", "read"}:
                self._read |= places.real
        if act.runs and not act.hidden and not act.tainted:
            self._commands |= self._spellings(act)

    def covers(self, act: Act) -> bool:
        """Return whether an act that dragoman does for the agent was certainly and completely
        allowed."""
        if act.runs:
            known = not act.hidden and not act.tainted and not act.paths
            return known and bool(self._spellings(act) & self._commands)
        files = {"edit": self._edited, "read": self._read}.get(act.kind)
        if files is None or not act.paths:
            return False
        found = [_places(path, _folders(act, self._workspace)) for path in act.paths]
        return all(each is not None and each.real <= files for each in found)

    def spend(self, act: Act, verdict: Verdict) -> None:
        """Remove the permission for an act that was done, if the permission counts only once."""
        if act.runs:
            self._commands -= self._spellings(act)
            return
        for path in act.paths:
            places = _places(path, _folders(act, self._workspace))
            if places is None:
                continue
            once = act.kind == "edit" and _is_protected(places, self._workspace)
            if once or verdict.action == "escalate":
                self._edited -= places.real
                self._read -= places.real

    def _spellings(self, act: Act) -> set[tuple[object, ...]]:
        folder = os.path.realpath(os.path.join(self._workspace, act.cwd or ""))
        found: set[tuple[object, ...]] = set()
        if act.line is not None:
            found.add((act.line.strip(), folder))
        if act.argv is not None:
            found.add((act.argv, folder))
            if len(act.argv) == 1:
                found.add((act.argv[0], folder))
            elif len(act.argv) == 3 and act.argv[:2] in SHELLS:
                # Some peers ask about a line, and pass it to a shell afterwards.
                found.add((act.argv[2].strip(), folder))
        return found


def _kept(act: Act) -> Act:
    """Return an act as a ruling keeps it: its paths are exact, its long texts are shortened."""
    words = act.argv
    return replace(
        act,
        title=act.title[:SHOWN_SIZE],
        line=None if act.line is None else act.line[:SHOWN_SIZE],
        argv=words and tuple(word[:SHOWN_SIZE] for word in words[:MAX_WORDS]),
    )


def _each_time(act: Act, verdict: Verdict) -> bool:
    """Return whether every act like this needs its own question, so that "always" is not
    possible."""
    if verdict.action == "escalate":
        return True
    from dragoman.policy.evaluation import changes_protected

    return changes_protected(act)


def _without_always(question: Question) -> Question:
    """Return the question without its options to allow always, unless it has no option to allow
    once."""
    kept = tuple(each for each in question.options if str(each.kind) != Answer.ALLOW_ALWAYS.value)
    once = any(str(each.kind) == Answer.ALLOW_ONCE.value for each in kept)
    return replace(question, options=kept) if once else question


def _key(act: Act) -> tuple[object, ...] | None:
    """Return the key under which an "always" for an act is remembered: its command, its files, or
    else its text.

    None if that is uncertain; then the answer counts once.
    """
    kinds = (act.kind, *act.evident)
    if act.hidden:
        return None
    if act.runs:
        return (kinds, act.argv, act.line, act.tainted, act.cwd, act.paths, act.fingerprint)
    if act.paths:
        found = [_places(path, _folders(act, act.workspace)) for path in act.paths]
        if any(each is None for each in found):
            return None
        return (kinds, frozenset(path for each in found if each for path in each.real))
    return (kinds, act.title, act.fingerprint) if act.fingerprint else None


def _is_protected(places: ResolvedPaths, workspace: str) -> bool:
    """Return whether a path may lead to a protected file."""
    from dragoman.policy.path_patterns import root_of
    from dragoman.policy.protected_paths import protected

    return protected(places, root_of(workspace)) is not None


def _folders(act: Act, workspace: str) -> tuple[str, ...]:
    """Return the directories that relative paths of an act may be resolved against."""
    return (workspace,) if act.cwd is None else (workspace, os.path.join(workspace, act.cwd))


def _places(path: str, folders: Sequence[str]) -> ResolvedPaths | None:
    from dragoman.policy.path_patterns import places_of

    return places_of(path, folders)

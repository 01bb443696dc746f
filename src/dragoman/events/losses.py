"""What a dialect cannot say, as data that can be checked.

Owns the parts of a session that may be missing, and the shape of a dialect's list of its losses. It
knows no dialect. `reduction` takes a part out of a stream of events, so that the same story told in
two dialects can be compared without what one of them cannot say.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from msgspec import Struct


class Part(enum.StrEnum):
    """A part of a session that a dialect may be unable to say."""

    THOUGHTS = "thoughts"
    MESSAGE_IDS = "the ids of messages"
    CHANGES = "changes of files"
    CHANGE_TEXTS = "whose call a change is, its kind, its texts, and that it is only proposed"
    CHANGE_DIFFS = "unified diffs"
    CHANGES_TOGETHER = "several changed files of one tool call: the last one counts"
    TOOLS = "tool calls and what they change"
    TOOL_NAMES = "the names of tools"
    TOOL_KINDS = "the kinds of tools, unless a name is one"
    TOOL_TITLES = "the titles of tool calls: the name serves as one"
    TOOL_ENDS = "how a tool call ended"
    TOOL_INPUT = "what a tool was given"
    TOOL_INPUT_VALUES = "what a tool was given, other than as text"
    TOOL_OUTPUT = "what a tool returned, as a value"
    TOOL_CONTENT = "what a tool call shows"
    TOOL_LOCATIONS = "where a tool call is at work"
    TOOL_ERRORS = "why a tool call failed, apart from what it returned"
    TOOL_IDS = "the ids of tool calls: they are numbered"
    PLANS = "plans"
    PLAN_ENTRIES = "the entries of a plan"
    PLAN_PRIORITIES = "the priorities in a plan"
    PLAN_TEXTS = "a plan that is a text"
    MODES = "the modes that there are, and which one is on"
    MODELS = "which model is used"
    OPTIONS = "the options that there are, and their values"
    COMMANDS = "the slash commands that there are"
    PERMISSIONS = "requests for permission"
    CONTEXT_USAGE = "how full the context is"
    TURN_USAGE = "what a turn used"
    TOTAL_USAGE = "the sum of what a turn used"
    FAILURES = "why a turn failed"
    ERROR_REPORTS = "errors apart from the end of a turn"
    REPLAYED_ROLES = "whose words replayed text is: all is the agent's"
    REPLAYED_IDS = "the ids of replayed messages"
    REPLAYED_TURNS = "where a replayed turn ended"


class Loss(Struct, frozen=True, gc=False):
    """Something that a dialect cannot say: for people, and for a machine."""

    what: str
    parts: tuple[Part, ...] = ()
    """What is missing in its events."""
    cannot: tuple[str, ...] = ()
    """What a client can never do with it: names of `Capabilities`."""


def parts_of(losses: Iterable[Loss]) -> frozenset[Part]:
    return frozenset(part for loss in losses for part in loss.parts)

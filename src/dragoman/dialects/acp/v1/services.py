"""Requests from an agent to its client: read and write files, run commands, ask the user.

Defines the params and results of `fs/…`, `terminal/…` and `elicitation/…`. It touches no file,
starts no process and does not check answers against a schema. Paths are absolute and lines count
from 1. Modes, actions and property types of elicitations are open: an unknown one is kept whole and
never treated as a known one.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import field

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1.session import EnvVariable
from dragoman.dialects.acp.v1.shape import STRICT, UNKNOWN_TAG, Family, Unknown, Wire


class ReadTextFileRequest(Wire, frozen=True, kw_only=True):
    """`fs/read_text_file`: read at most `limit` lines starting at `line`, including unsaved
    changes."""

    session_id: str
    path: str
    line: Annotated[int | None, STRICT] = None
    limit: Annotated[int | None, STRICT] = None


class ReadTextFileResponse(Wire, frozen=True, kw_only=True):
    """The text of the file, or of the requested lines."""

    content: str


class WriteTextFileRequest(Wire, frozen=True, kw_only=True):
    """`fs/write_text_file`: replace the file's text; a missing file is created."""

    session_id: str
    path: str
    content: str


class WriteTextFileResponse(Wire, frozen=True, kw_only=True):
    """The text is written."""


class CreateTerminalRequest(Wire, frozen=True, kw_only=True):
    """`terminal/create`: start a command; keep the last `output_byte_limit` bytes of its output."""

    session_id: str
    command: str
    args: Annotated[Sequence[str], STRICT] = []
    env: Annotated[Sequence[EnvVariable], STRICT] = []
    cwd: Annotated[str | None, STRICT] = None
    output_byte_limit: Annotated[int | None, STRICT] = None


class CreateTerminalResponse(Wire, frozen=True, kw_only=True):
    """The command was started; it may still be running."""

    terminal_id: str


class TerminalExitStatus(Wire, frozen=True, kw_only=True):
    """How a command ended: with a code, or by a signal."""

    exit_code: int | None = None
    signal: str | None = None


class TerminalOutputRequest(Wire, frozen=True, kw_only=True):
    """`terminal/output`: request the output so far."""

    session_id: str
    terminal_id: str


class TerminalOutputResponse(Wire, frozen=True, kw_only=True):
    """The output, `truncated` if its beginning was dropped, and the exit status once the command
    has ended."""

    output: str
    truncated: bool
    exit_status: TerminalExitStatus | None = None


class WaitForTerminalExitRequest(Wire, frozen=True, kw_only=True):
    """`terminal/wait_for_exit`: the response comes when the command ends."""

    session_id: str
    terminal_id: str


class WaitForTerminalExitResponse(Wire, frozen=True, kw_only=True):
    """How the command ended: with a code, or by a signal."""

    exit_code: int | None = None
    signal: str | None = None


class KillTerminalRequest(Wire, frozen=True, kw_only=True):
    """`terminal/kill`: end the command, keep the terminal and its output."""

    session_id: str
    terminal_id: str


class KillTerminalResponse(Wire, frozen=True, kw_only=True):
    """The command was asked to end."""


class ReleaseTerminalRequest(Wire, frozen=True, kw_only=True):
    """`terminal/release`: end the command if it runs, and forget the terminal."""

    session_id: str
    terminal_id: str


class ReleaseTerminalResponse(Wire, frozen=True, kw_only=True):
    """The terminal was released."""


class StringFormat(StrEnum):
    """The known formats of a text in a form; other values may come."""

    EMAIL = "email"
    URI = "uri"
    DATE = "date"
    DATE_TIME = "date-time"


class EnumOption(Wire, frozen=True, kw_only=True):
    """A choice with a title."""

    const: str
    title: str
    description: str | None = None


class StringPropertySchema(Wire, frozen=True, kw_only=True, tag_field="type", tag="string"):
    """A property of a form whose value is a text; with `enum` or `one_of`, one of those listed."""

    title: str | None = None
    description: str | None = None
    min_length: Annotated[int | None, STRICT] = None
    max_length: Annotated[int | None, STRICT] = None
    pattern: Annotated[str | None, STRICT] = None
    format: Annotated[str | None, STRICT] = None
    default: str | None = None
    enum: Annotated[Sequence[str] | None, STRICT] = None
    one_of: Annotated[Sequence[EnumOption] | None, STRICT] = None


class NumberPropertySchema(Wire, frozen=True, kw_only=True, tag_field="type", tag="number"):
    """A property of a form whose value is a number."""

    title: str | None = None
    description: str | None = None
    minimum: Annotated[float | None, STRICT] = None
    maximum: Annotated[float | None, STRICT] = None
    default: float | None = None


class IntegerPropertySchema(Wire, frozen=True, kw_only=True, tag_field="type", tag="integer"):
    """A property of a form whose value is an integer."""

    title: str | None = None
    description: str | None = None
    minimum: Annotated[int | None, STRICT] = None
    maximum: Annotated[int | None, STRICT] = None
    default: int | None = None


class BooleanPropertySchema(Wire, frozen=True, kw_only=True, tag_field="type", tag="boolean"):
    """A property of a form whose value is true or false."""

    title: str | None = None
    description: str | None = None
    default: bool | None = None


class MultiSelectItemsFamily(Family):
    """The options of a multiple choice: texts, or choices with titles."""

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire] | type[Unknown]:
        kind = raw.get("type")
        if kind == "string":
            return StringMultiSelectItems
        # Other types are kept whole, but an object without a type can only be the titled form.
        return UnknownMultiSelectItems if isinstance(kind, str) else TitledMultiSelectItems


class StringMultiSelectItems(
    Wire, MultiSelectItemsFamily, frozen=True, kw_only=True, tag_field="type", tag="string"
):
    """Choices that are plain texts."""

    enum: Sequence[str]


class TitledMultiSelectItems(Wire, MultiSelectItemsFamily, frozen=True, kw_only=True):
    """Choices with titles."""

    any_of: Sequence[EnumOption]


class UnknownMultiSelectItems(Unknown, MultiSelectItemsFamily, frozen=True):
    """Choices of a type this version does not know."""


if TYPE_CHECKING:
    MultiSelectItems: TypeAlias = (
        StringMultiSelectItems | TitledMultiSelectItems | UnknownMultiSelectItems
    )
else:
    MultiSelectItems = MultiSelectItemsFamily


class MultiSelectPropertySchema(Wire, frozen=True, kw_only=True, tag_field="type", tag="array"):
    """A property of a form whose value is a list of choices."""

    items: MultiSelectItems
    title: str | None = None
    description: str | None = None
    min_items: Annotated[int | None, STRICT] = None
    max_items: Annotated[int | None, STRICT] = None
    default: Sequence[str] | None = None


class UnknownPropertySchema(Unknown, frozen=True, tag_field="type", tag=UNKNOWN_TAG):
    """A property of a type this version does not know; a client declines the form."""


ElicitationPropertySchema: TypeAlias = (
    StringPropertySchema
    | NumberPropertySchema
    | IntegerPropertySchema
    | BooleanPropertySchema
    | MultiSelectPropertySchema
    | UnknownPropertySchema
)


class ElicitationSchema(Wire, frozen=True, kw_only=True):
    """A form: named properties, some of them required."""

    # A default made by a factory is not omitted: readers of JSON Schema expect a type.
    type: str = field(default_factory=lambda: "object")
    title: str | None = None
    description: str | None = None
    properties: Annotated[Mapping[str, ElicitationPropertySchema], STRICT] = {}
    required: Annotated[Sequence[str] | None, STRICT] = None


class ElicitationScope(Wire, frozen=True, kw_only=True):
    """What an elicitation belongs to: a session (and a tool call in it), or a request. Raises
    `ValueError` if it names neither."""

    message: str
    session_id: str | None = None
    tool_call_id: str | None = None
    request_id: int | str | None = None

    def __post_init__(self) -> None:
        if self.session_id is None and self.request_id is None:
            raise ValueError("an elicitation needs a `sessionId` or a `requestId`")


class ElicitationForm(ElicitationScope, frozen=True, kw_only=True, tag_field="mode", tag="form"):
    """Ask the user to fill in a form, never for secrets; requires `elicitation.form`."""

    requested_schema: ElicitationSchema


class ElicitationUrl(ElicitationScope, frozen=True, kw_only=True, tag_field="mode", tag="url"):
    """Ask the user to open a URL; requires `elicitation.url`."""

    elicitation_id: str
    url: str


class UnknownElicitation(Unknown, frozen=True, tag_field="mode", tag=UNKNOWN_TAG):
    """An elicitation in a mode this version does not know; a client responds "invalid params"."""


CreateElicitationRequest: TypeAlias = ElicitationForm | ElicitationUrl | UnknownElicitation

ElicitationContentValue: TypeAlias = str | int | float | bool | Sequence[str]


class ElicitationAccepted(Wire, frozen=True, kw_only=True, tag_field="action", tag="accept"):
    """The user agreed. In mode `url` this is consent to open the URL, not completion."""

    content: Annotated[Mapping[str, ElicitationContentValue] | None, STRICT] = None


class ElicitationDeclined(Wire, frozen=True, kw_only=True, tag_field="action", tag="decline"):
    """The user refused."""


class ElicitationCancelled(Wire, frozen=True, kw_only=True, tag_field="action", tag="cancel"):
    """The user dismissed the question without an answer."""


class UnknownElicitationAction(Unknown, frozen=True, tag_field="action", tag=UNKNOWN_TAG):
    """An action this version does not know; an agent does not treat it as consent."""


CreateElicitationResponse: TypeAlias = (
    ElicitationAccepted | ElicitationDeclined | ElicitationCancelled | UnknownElicitationAction
)


class CompleteElicitationNotification(Wire, frozen=True, kw_only=True):
    """`elicitation/complete`: the interaction at the URL is complete."""

    elicitation_id: str


analyse(__name__)

"""Filter messages between an ACP peer and an ACP client that lacks some capabilities.

Updates of kinds that the client did not advertise are translated to others or dropped, boolean
options are removed, and models that are not a config option are offered as one. Forwarding is in
`gateway.acp_passthrough`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dragoman.client.acp.session import APPLY, Session
from dragoman.client.permissions import Answer, choose
from dragoman.decoders import typed_decoder
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.dialects.acp.v1.methods import Gate
from dragoman.errors import MessageTooLong
from dragoman.events.model import EventEnvelope
from dragoman.gateway.choices import MODEL_OPTION, choices_of, lacks_models
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.wire.messages import UNDECODABLE, Notification

RAW_KEY: Final = "dragoman.raw"
"""The key in an update's `_meta` for the peer's own message, if requested."""

_GATED: Final = {
    "session.notices": ("notice",),
    "session.compaction": ("compaction_update", "compaction_summary_chunk"),
}
"""The kinds of updates that require a capability of the client, by that capability."""

_BOOLEANS: Final = "session.configOptions.boolean"
_OPTIONS: Final = "config_option_update"
ANSWER_KINDS: Final = frozenset(answer.value for answer in Answer if answer is not Answer.CANCEL)
_decode_update: Final = decoder(acp.SessionNotification)
_decode_permission: Final = decoder(acp.RequestPermissionRequest)


class _Kind(Struct):
    sessionUpdate: str = ""


class _Update(Struct):
    update: _Kind


class _Option(Struct):
    kind: str = ""


class _Question(Struct):
    options: list[_Option] = []


_kind: Final = typed_decoder(_Update)
_question: Final = typed_decoder(_Question)


def can(client: acp.ClientCapabilities, capability: str) -> bool:
    """Return whether a client advertised a capability, given by its dotted wire name."""
    return Gate("client", (capability,)).is_open(client)


def can_elicit(client: acp.ClientCapabilities, params: Raw) -> bool:
    """Return whether a client advertised the kind of elicitation that is requested."""
    try:
        asked = acp.ELICITATION_CREATE.decode_params(params)
    except msgspec.ValidationError:
        return False
    form = isinstance(asked, acp.ElicitationForm)
    return can(client, "elicitation.form" if form else "elicitation.url")


def hello(raw: Raw, client: acp.ClientCapabilities) -> Any:
    """Return the peer's response to the handshake, without logins in a terminal if the client does
    not support them."""
    answer = msgspec.json.decode(raw)
    methods = answer.get("authMethods")
    if isinstance(methods, list) and not client.auth.terminal:
        answer["authMethods"] = [
            method
            for method in methods
            if not (isinstance(method, dict) and method.get("type") == "terminal")
        ]
    return answer


def question(params: Raw) -> Any:
    """Return a permission request without its options of an unknown kind; unchanged if it has none
    of these or cannot be decoded."""
    try:
        if all(option.kind in ANSWER_KINDS for option in _question(params).options):
            return params
        asked = _decode_permission(params)
    except UNDECODABLE:
        return params
    return replace(asked, options=[each for each in asked.options if each.kind in ANSWER_KINDS])


def _rejected(params: Raw) -> acp.RequestPermissionResponse:
    """Return the response that rejects a permission request, or cancels it if no option rejects."""
    try:
        options = _decode_permission(params).options
    except msgspec.ValidationError:
        return acp.cancelled()
    option_id = choose(options, Answer.REJECT_ONCE)
    return acp.cancelled() if option_id is None else acp.selected(option_id)


DECLINED: Final[dict[str, Callable[[Raw], Any]]] = {
    acp.SESSION_REQUEST_PERMISSION.name: _rejected,
    acp.ELICITATION_CREATE.name: lambda params: acp.ElicitationDeclined(),
}
"""By method: the function that returns the response to a question if the client cannot be asked."""


class Unannounced:
    """Replaces those updates of one session that the client does not support."""

    __slots__ = ("_place", "speaker", "strange")

    def __init__(self, client: acp.ClientCapabilities, place: EventEnvelope) -> None:
        self._place = place
        self.strange = frozenset(
            kind
            for capability, kinds in _GATED.items()
            if not can(client, capability)
            for kind in kinds
        )
        self.speaker = AcpTranslator(
            notices=can(client, "session.notices"), compaction=can(client, "session.compaction")
        )

    def instead(self, params: Raw) -> Sequence[acp.SessionUpdate] | None:
        """Return the updates to send instead of this one, or None to send it unchanged."""
        try:
            if _kind(params).update.sessionUpdate not in self.strange:
                return None
            return self.said(_decode_update(params).update, None)
        except UNDECODABLE:
            return None

    def said(self, update: acp.SessionUpdate, line: bytes | None) -> list[acp.SessionUpdate]:
        events = translate.of_update(update, self._place, line)
        return [said for event in events for said in self.speaker.updates(event)]


class UpdateFilter:
    """Filters the messages of one session for one client."""

    def __init__(
        self, client: acp.ClientCapabilities, session: Session, place: EventEnvelope, *, raw: bool
    ) -> None:
        self._client = client
        self._session = session
        self._raw = raw
        self._unannounced = Unannounced(client, place)
        self._strange = self._unannounced.strange
        self._booleans = can(client, _BOOLEANS)

    @property
    def passes_all(self) -> bool:
        """Whether no message has to be changed: the client supports all updates and boolean
        options, and the agent has no list of models that may have to be offered as an option."""
        return self._booleans and not self._strange and self._session.models is None

    def updates(self, notification: Notification) -> Sequence[acp.SessionUpdate] | None:
        """Return the updates to send instead of this one, or None to send it unchanged. An update
        that is replaced is also applied to the session."""
        params = notification.params
        try:
            kind = _kind(params).update.sessionUpdate
        except UNDECODABLE:
            return None
        known = kind not in self._strange
        if known and (kind != _OPTIONS or (self._booleans and self._session.models is None)):
            return None
        try:
            update = _decode_update(params).update
        except msgspec.ValidationError:
            return None
        apply = APPLY.get(type(update))
        if apply is not None:
            apply(self._session, update)
        updates: list[acp.SessionUpdate] = []
        if known:
            if options := self.choices():
                updates.append(acp.ConfigOptionUpdate(config_options=options))
        else:
            updates = self._unannounced.said(update, notification.line)
        if self._raw:
            meta = {RAW_KEY: msgspec.json.decode(notification.line)}
            return [replace(each, meta=meta) for each in updates]
        return updates

    def left_out(self, error: MessageTooLong) -> Sequence[acp.SessionUpdate]:
        """Return the updates that say that an update was too long for the client."""
        return self._unannounced.speaker.left_out(error)

    # -- options

    def choices(self) -> list[acp.SessionConfigOption]:
        """Return the config options to show to the client."""
        return choices_of(self._session, self._client)

    def opened(self, raw: Raw) -> Any:
        """Return the response that opened the session, filtered for the client."""
        if self._session.models is None and (self._booleans or b'"boolean"' not in bytes(raw)):
            return raw
        options = self.choices()
        answer = msgspec.json.decode(raw)
        if options or answer.get("configOptions"):
            answer["configOptions"] = [Raw(acp.encode(option)) for option in options]
        return answer

    def chosen(self, raw: Raw) -> Any:
        """Return the response to a change of a config option, filtered for the client. If it has to
        be decoded, its options are also stored in the session."""
        if self._session.models is None and self._booleans:
            return raw
        try:
            answer = acp.SESSION_SET_CONFIG_OPTION.decode_result(raw)
        except msgspec.ValidationError:
            return raw
        self._session.config_options = answer.config_options
        return acp.SetSessionConfigOptionResponse(config_options=self.choices())

    def chosen_model(self, params: Raw) -> str | None:
        """Return the model to which a request sets the generated model option. None for a request
        that sets another option or cannot be decoded."""
        if not lacks_models(self._session):
            return None
        try:
            request = acp.SESSION_SET_CONFIG_OPTION.decode_params(params)
        except msgspec.ValidationError:
            return None
        value = request.value
        return value if request.config_id == MODEL_OPTION and isinstance(value, str) else None

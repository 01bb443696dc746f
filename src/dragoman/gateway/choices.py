"""Translate a peer's modes, models and options into ACP session modes and config options.

Nothing is validated here: the peer accepts or rejects each value, and the values shown are the last
ones the peer reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dragoman.agent.settings import SessionSettings, takes_booleans
from dragoman.client.acp.session import Session
from dragoman.client.conversation import Conversation
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.session import OPEN_ENDED
from dragoman.dialects.acp.v1.shape import METADATA, ours_in
from dragoman.events import parts
from dragoman.events.view import View

MODEL_OPTION: Final = "model"
"""The id of the generated option for an agent's models, if they are not one of its own options."""


class Choices(SessionSettings):
    """The modes and config options of one session, as the peer last reported them. Every value is
    allowed here: the peer accepts or rejects it."""

    __slots__ = ("_conversation", "_view")

    def __init__(self, conversation: Conversation | None = None, view: View | None = None) -> None:
        super().__init__((), ())
        self._conversation = conversation
        self._view = view or View()

    @property
    def first_mode(self) -> str | None:
        return self._view.mode if self._mode_list() else None

    def has_mode(self, mode_id: object) -> bool:
        return True

    def allows(self, option_id: str, value: object) -> bool:
        return True

    def mode_state(self, mode_id: str | None) -> acp.SessionModeState | None:
        modes = self._mode_list()
        if not modes or self._view.mode is None:
            return None
        return acp.SessionModeState(current_mode_id=self._view.mode, available_modes=modes)

    def config_options(
        self, mode_id: str | None, values: Mapping[str, str | bool], client: acp.ClientCapabilities
    ) -> list[acp.SessionConfigOption]:
        session = self._native()
        if session is not None:
            return choices_of(session, client)
        options: list[acp.SessionConfigOption] = [_option(each) for each in self._view.options]
        model = self._view.model
        if model is not None and not any(map(_is_model, options)):
            # Show the model in use, even if no other can be chosen.
            only = acp.SessionConfigSelectOption(value=model, name=model)
            options.append(
                acp.SessionConfigSelect(
                    id=MODEL_OPTION,
                    name="Model",
                    category="model",
                    current_value=model,
                    options=[only],
                )
            )
        return _taken(options, client)

    def _mode_list(self) -> Sequence[acp.SessionMode]:
        session = self._native()
        if session is not None:
            return session.modes.available_modes if session.modes is not None else ()
        return [acp.SessionMode(id=mode.id, name=mode.name) for mode in self._view.modes]

    def _native(self) -> Session | None:
        """Return the session if the agent speaks ACP itself, so that its own values need no
        translation; else None."""
        return self._conversation if isinstance(self._conversation, Session) else None


def wanted_model(meta: Mapping[str, Any]) -> str | None:
    """Return the model that a client requests in the `_meta` of its `session/new`, or None. ACP has
    no field for it, and in some dialects a model can be set only when a session is opened."""
    model = ours_in(meta).get(MODEL_OPTION)
    return model if isinstance(model, str) and model else None


def wanted_metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that a client sends in the `_meta` of its `session/new`, for an agent
    that does not speak ACP; empty if it sent none."""
    told = ours_in(meta).get(METADATA)
    return dict(told) if isinstance(told, Mapping) else {}


def stands_for_models(conversation: Conversation, option_id: str) -> bool:
    """Return whether an option is the one that was generated for the agent's models."""
    native = isinstance(conversation, Session) and lacks_models(conversation)
    return native and option_id == MODEL_OPTION


def lacks_models(session: Session) -> bool:
    """Return whether the agent has a list of models that is not one of its options."""
    return session.models is not None and not any(map(_is_model, session.config_options or ()))


def choices_of(session: Session, client: acp.ClientCapabilities) -> list[acp.SessionConfigOption]:
    """Return the options that a client can show, for a session of an agent that speaks ACP itself.
    A list of models that is not an option is added as one."""
    options = list(session.config_options or ())
    if lacks_models(session):
        options.append(_models(session.models))
    return _taken(options, client)


def _taken(
    options: list[acp.SessionConfigOption], client: acp.ClientCapabilities
) -> list[acp.SessionConfigOption]:
    """Return those of the options that a client can show."""
    if takes_booleans(client):
        return options
    return [option for option in options if not isinstance(option, acp.SessionConfigBoolean)]


def _is_model(option: acp.SessionConfigOption) -> bool:
    return isinstance(option, acp.SessionConfigSelect) and option.category == "model"


def _models(models: Any) -> acp.SessionConfigSelect:
    return acp.SessionConfigSelect(
        id=MODEL_OPTION,
        name="Model",
        category="model",
        current_value=models.current_model_id,
        options=[
            acp.SessionConfigSelectOption(
                value=model.model_id, name=model.name, description=model.description
            )
            for model in models.available_models
        ],
    )


def _option(option: parts.SessionOption) -> acp.SessionConfigSelect | acp.SessionConfigBoolean:
    if isinstance(option.value, bool):
        return acp.SessionConfigBoolean(
            id=option.id, name=option.name, current_value=option.value, category=option.category
        )
    return acp.SessionConfigSelect(
        id=option.id,
        name=option.name,
        current_value=option.value,
        category=option.category,
        meta=OPEN_ENDED if option.open_ended else None,
        options=[
            acp.SessionConfigSelectOption(
                value=choice.value, name=choice.name, description=choice.description
            )
            for choice in option.choices
        ],
    )

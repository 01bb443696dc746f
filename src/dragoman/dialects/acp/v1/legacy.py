"""What real agents still send although no schema has it any more.

Owns the model list of older session results with its request `session/set_model`, and the
authentication method `env_var`. They are read so that a client can use such agents; an agent
should not send them: `config` and `auth` hold what replaced them.
"""

from collections.abc import Sequence
from typing import Annotated

from dragoman.dialects.acp.v1.shape import FORGIVING, Wire


class ModelInfo(Wire, frozen=True, kw_only=True):
    """One model a session can use."""

    model_id: str
    name: str
    description: str | None = None


class SessionModelState(Wire, frozen=True, kw_only=True):
    """The models of a session and the current one."""

    current_model_id: str
    available_models: Annotated[Sequence[ModelInfo], FORGIVING]


class SetSessionModelRequest(Wire, frozen=True, kw_only=True):
    """`session/set_model`: change the model."""

    session_id: str
    model_id: str


class SetSessionModelResponse(Wire, frozen=True, kw_only=True):
    """The model is set, or the agent did not look: several accept any id."""


class AuthEnvVar(Wire, frozen=True, kw_only=True):
    """A variable that has to be set before the agent starts."""

    name: str
    label: str | None = None
    secret: bool = True
    optional: bool = False

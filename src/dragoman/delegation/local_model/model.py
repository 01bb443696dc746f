"""Settings of the local model (API, URL, API key variable, token limit) and their validation.

The API key is never a setting: the settings name an environment variable, which is read for each
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.errors import AuthRequired, ConfigInvalid
from dragoman.events.parts import Usage
from dragoman.transports.addresses import is_this_machine

Api: TypeAlias = Literal["anthropic", "openai"]

KEY_VARIABLES: Final[Mapping[Api, str]] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
}
"""Environment variable of the API key, unless a setting names another one."""

MAX_TOKENS: Final = 8192
"""Default maximum number of tokens in an answer: about ten pages."""

ORIGIN: Final = "local_model"


class LocalModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an API: Anthropic's, or any that is compatible with OpenAI's chat
    completions."""

    api: Api
    model: str
    """The model id in the API."""
    base_url: str | None = None
    """Base URL of the API; for `openai` including its version, such as
    http://127.0.0.1:11434/v1."""
    key_variable: str | None = None
    """The environment variable that holds the key; None for that of the API in `KEY_VARIABLES`."""
    max_tokens: int = MAX_TOKENS
    """Maximum number of tokens in an answer."""
    system: str = ""
    """The system prompt."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigInvalid(ORIGIN, "no model is set", key="model")
        if self.max_tokens < 1:
            raise ConfigInvalid(ORIGIN, "it must be at least 1", key="max_tokens")
        if self.base_url is None:
            if self.api == "openai":
                raise ConfigInvalid(
                    ORIGIN, "not set, and this kind of API has no default address", key="base_url"
                )
        elif not self.base_url.lower().startswith(("http://", "https://")) or not self.host:
            raise ConfigInvalid(ORIGIN, "not a valid http or https URL", key="base_url")

    @property
    def host(self) -> str:
        """The host in the base URL; empty if there is none, or if the URL is invalid."""
        try:
            address = urlsplit(self.base_url or "")
            host = address.hostname or ""
            # An invalid name or port raises an error.
            host.encode("idna")
            return "" if address.port == 0 else host
        except ValueError:
            return ""

    @property
    def on_this_machine(self) -> bool:
        """Whether the host is this machine. The API clients use no proxy for it."""
        return is_this_machine(self.host)

    def key(self, environ: Mapping[str, str]) -> str:
        """Return the API key from the environment. Raises `AuthRequired` if it is required and
        missing, or contains a character that an HTTP header cannot have.

        Returns an empty string if the API is `openai`, no variable is configured and the usual one
        is empty: a local server usually needs no key.
        """
        variable = self.key_variable or KEY_VARIABLES[self.api]
        if value := environ.get(variable, "").strip():
            if not (value.isascii() and value.isprintable()):
                # The error of an HTTP library would contain the key.
                raise AuthRequired(
                    "the API key of the local model has a line break or another character that "
                    "cannot be sent",
                    hint=f"set {variable} again",
                )
            return value
        if self.api == "openai" and self.key_variable is None:
            return ""
        raise AuthRequired("there is no API key for the local model", hint=f"set {variable}")


class ModelChunk(Struct, frozen=True):
    """A chunk of an answer. None and "" mean not reported."""

    text: str = ""
    stop: str = ""
    model: str = ""
    usage: Usage | None = None

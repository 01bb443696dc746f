"""Settings of the local model (API, URL, API key variable, token limit) and their validation.

The API key is never a setting: the settings name an environment variable, which is read for each
request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.errors import AuthRequired, ConfigInvalid
from dragoman.events.parts import Usage

Api: TypeAlias = Literal["anthropic", "openai"]

KEY_VARIABLES: Final[Mapping[Api, str]] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
}
"""Variable of the API key, unless a setting names another one."""

MAX_TOKENS: Final = 8192
"""Default maximum tokens of an answer: about ten pages."""

ORIGIN: Final = "local_model"


class LocalModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an API: Anthropic's, or any that is compatible with OpenAI's chat
    completions."""

    api: Api
    model: str
    """The model id in the API."""
    base_url: str | None = None
    """Base URL of the API. For `openai` with its version, such as http://127.0.0.1:11434/v1."""
    key_variable: str | None = None
    """The environment variable that holds the key."""
    max_tokens: int = MAX_TOKENS
    """Maximum tokens of an answer."""
    system: str = ""
    """The system prompt."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigInvalid(ORIGIN, "it names no model", key="model")
        if self.max_tokens < 1:
            raise ConfigInvalid(ORIGIN, "an answer has at least one token", key="max_tokens")
        if self.base_url is None:
            if self.api == "openai":
                raise ConfigInvalid(ORIGIN, "an API of this kind can be anywhere", key="base_url")
        elif not self.base_url.lower().startswith(("http://", "https://")) or not self.host:
            raise ConfigInvalid(ORIGIN, "not an http or https URL", key="base_url")

    @property
    def host(self) -> str:
        try:
            return urlsplit(self.base_url or "").hostname or ""
        except ValueError:
            return ""

    @property
    def on_this_machine(self) -> bool:
        """Whether the host is loopback, so that no proxy is used."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def key(self, environ: Mapping[str, str]) -> str:
        """The API key from the environment. Raises `AuthRequired` if it is required and missing.

        A local model usually needs none, so an OpenAI-compatible server decides itself.
        """
        variable = self.key_variable or KEY_VARIABLES[self.api]
        if value := environ.get(variable, "").strip():
            return value
        if self.api == "openai" and self.key_variable is None:
            return ""
        raise AuthRequired("there is no key for the local model", hint=f"set {variable}")


class ModelChunk(Struct, frozen=True):
    """A chunk of an answer. None and "" mean not reported."""

    text: str = ""
    stop: str = ""
    model: str = ""
    usage: Usage | None = None

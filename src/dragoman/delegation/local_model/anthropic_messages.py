"""Stream an answer from the Anthropic Messages API with Anthropic's SDK.

Sends one request without retry, and uses only the API key that it is given, never one that the SDK
would find. `ask` assembles the chunks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anthropic
import httpx2

from dragoman.delegation.local_model.failures import from_network, from_status, from_stream
from dragoman.delegation.local_model.model import KEY_VARIABLES, LocalModel, ModelChunk
from dragoman.delegation.local_model.openai_chat import NOT_SENT
from dragoman.errors import DragomanError, InvalidAnswer
from dragoman.events.parts import Usage


async def stream(
    model: LocalModel, prompt: str, *, key: str, connect_timeout: float
) -> AsyncGenerator[ModelChunk, None]:
    """Yield the answer in chunks. Whatever fails is raised as a `DragomanError`."""
    where = model.base_url or "Anthropic's API"
    connected = False
    # The library's only timeout is for the connection; the caller enforces the others.
    timeout = httpx2.Timeout(None, connect=connect_timeout)
    async with httpx2.AsyncClient(
        timeout=timeout, trust_env=not model.on_this_machine
    ) as http, anthropic.AsyncAnthropic(
        # A prompt that may have run must not be sent again silently.
        api_key=key, base_url=model.base_url, max_retries=0, timeout=timeout, http_client=http
    ) as client:  # fmt: skip
        try:
            events = await client.messages.create(
                model=model.model,
                max_tokens=model.max_tokens,
                system=model.system or anthropic.omit,
                messages=[{"role": "user", "content": prompt}],
                stream=True,
            )
            connected = True
            async with events:
                async for event in events:
                    if (told := _read(event)) is not None:
                        yield told
        except anthropic.APIStatusError as error:
            raise _refusal(error, model) from error
        except anthropic.APIConnectionError as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            sent = connected or not isinstance(cause, NOT_SENT)
            raise from_network(cause, connected=sent, where=where) from error
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise from_network(error, connected=connected, where=where) from error
        except (anthropic.AnthropicError, ValueError) as error:
            raise InvalidAnswer(f"{where} sent an invalid response: {error}") from error


def _read(event: anthropic.types.RawMessageStreamEvent) -> ModelChunk | None:
    match event.type:
        case "message_start":
            return ModelChunk(model=event.message.model, usage=_usage(event.message.usage))
        case "content_block_delta" if event.delta.type == "text_delta":
            return ModelChunk(text=event.delta.text)
        case "message_delta":
            return ModelChunk(stop=event.delta.stop_reason or "", usage=_usage(event.usage))
        case "message_stop":
            return None
        case _:
            # A thought, or an event type of a later version, also shows that the model works.
            return ModelChunk()


def _usage(usage: anthropic.types.Usage | anthropic.types.MessageDeltaUsage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
    )


def _refusal(error: anthropic.APIStatusError, model: LocalModel) -> DragomanError:
    variable = model.key_variable or KEY_VARIABLES[model.api]
    body = error.body if error.body is not None else error.message
    if error.response.is_success:
        return from_stream(body, variable=variable)
    return from_status(error.status_code, body, error.response.headers, variable=variable)

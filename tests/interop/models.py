"""Checks messages with the models of the official Python SDK.

Maps a type's name to its model, and defines how strictly it is read. The models alone are as
lenient as the protocol: an invalid part may be dropped silently. So a value must leave its model as
it entered, except for parts that are newer than the models.
"""

from __future__ import annotations

import functools
from typing import Any

import acp.schema
import pydantic

from tests.interop.test_acp_v1_types_against_official_models import without_what_is_too_new

SPLIT: dict[str, Any] = {
    "SetSessionConfigOptionRequest": (
        acp.schema.SetSessionConfigOptionBooleanRequest
        | acp.schema.SetSessionConfigOptionSelectRequest
    )
}
"""Types that the package has only as their parts."""


@functools.cache
def adapter(type_name: str) -> pydantic.TypeAdapter[Any]:
    model: Any = SPLIT.get(type_name) or getattr(acp.schema, type_name)
    return pydantic.TypeAdapter(model)


def judge(type_name: str, value: Any) -> None:
    """Raise unless the official model reads the value and loses nothing of it."""
    model = adapter(type_name)
    read = model.validate_python({} if value is None else value)
    written = model.dump_python(read, mode="json", by_alias=True, exclude_unset=True)
    assert written == without_what_is_too_new({} if value is None else value), type_name

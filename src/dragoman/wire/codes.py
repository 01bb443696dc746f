"""JSON-RPC error codes: those of the standard, and those the agent protocols add."""

from __future__ import annotations

from typing import Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

REQUEST_CANCELLED: Final = -32800
"""The request, or the work behind it, was cancelled."""
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002
"""A resource (a file, a session) does not exist."""
OVERLOADED: Final = -32001
"""Refused before anything ran; may be sent again later."""
UNSUPPORTED_VERSION: Final = -32022

UNKNOWN: Final = 0
"""Used as the code of an error object that had no usable one."""

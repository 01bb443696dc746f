"""What every agent of these tests does, whoever wrote the kit it is built with.

A prompt's first text is the name of a scene; ACTS in `acts` says which scenes there are and what
the client expects. The updates and the content that travel in them are data (script.json), so that
programs in other languages read the same. It imports nothing of dragoman: one of the agents is
written with nothing but the official SDK.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("script.json")

DATA: dict[str, Any] = json.loads(SCRIPT.read_text())
BLOCKS: list[dict[str, Any]] = DATA["blocks"]
UPDATES: list[dict[str, Any]] = DATA["updates"]

FILE_TEXT = "one\ntwo\nthree\n"
LOCKED = "locked"
"""The name of a folder in which a session needs a login."""

HELLO = (sys.executable, ["-c", "import os; print('hello', os.environ['GREETED'])"])
ENDLESS = (sys.executable, ["-c", "import threading; threading.Event().wait()"])
"""A command that ends only when it is killed."""

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "sure": {"type": "boolean", "default": False},
    },
    "required": ["name"],
}
FORM_ANSWER: dict[str, Any] = {"name": "Ada", "age": 36, "sure": True}


def bare(value: Any) -> Any:
    """JSON without nulls: a null and an absent member say the same in what is compared here."""
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [bare(item) for item in value]
    return value

"""What every agent of these tests does, whichever kit it is built with.

A prompt's first text is the name of a scene; ACTS in `acts` lists the scenes and what the client
expects. The updates and their content are data (script.json), so that programs in other languages
use the same. It imports nothing from dragoman, because one of the agents is written with only the
official SDK.
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
"""The name of a directory in which a session needs a login."""

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
    """JSON without nulls: in these comparisons, null means the same as a missing member."""
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [bare(item) for item in value]
    return value

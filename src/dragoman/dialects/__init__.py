"""Message formats and their meaning: one package per dialect.

A dialect defines its method names, its message shapes and their translation to events. It does no
I/O, does not wait and does not log. `transports` and `rpc` move the bytes, and no dialect imports
another.
"""

from __future__ import annotations

import sys

import msgspec
from msgspec import Struct


def analyse(module: str) -> None:
    """Analyse all `Struct` types that a module defines. Must be the module's last statement:
    `analyse(__name__)`.

    msgspec analyses a type when it is first used, without a lock (seen in version 0.22). A second
    thread that uses the type at the same time, even as part of another type, reads uninitialized
    memory, and the process crashes with a segmentation fault. Once a type is analysed, any thread
    may create decoders for it and for unions and containers of it. Python runs a module in one
    thread, and other threads that import it wait. `dragoman.decoders` decodes types that were not
    analysed like this.
    """
    for value in vars(sys.modules[module]).values():
        if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module:
            msgspec.json.Decoder(value)

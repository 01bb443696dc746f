"""Convert option values for typer without pydantic.

Typer would import pydantic for this, which takes as long as everything else before the agent starts
(measured: 150 of 400 ms). Types that are not handled here are left to typer.
"""

from __future__ import annotations

import enum
import types
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

import typer

from dragoman.cli.prompt_options import AFTER_DASHES, Duration, checked
from dragoman.errors.usage import shown

SIMPLE: Final = (str, int, float, bool, Path, Duration)


_WANTED: Final = {
    int: "a whole number of at most 18 digits",
    float: "a number",
    bool: "a flag",
    str: "UTF-8 text",
    Path: "a path",
    Duration: "a time such as 90s, 30m or 2h",
}


class Converter:
    """Replaces typer's converter of one parameter."""

    def __init__(self, kind: type, *, many: bool) -> None:
        self._kind = kind
        self._many = many

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return [] if self._many else None
        if self._many:
            return [self._one(each, param, ctx) for each in value]
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        # A flag is already a bool; bool() of any word would be true.
        if self._kind is not bool or isinstance(value, bool):
            try:
                return checked(self._kind(value), value)
            except ValueError:
                pass
        if issubclass(self._kind, enum.Enum):
            wanted = "one of " + ", ".join(str(each.value) for each in self._kind)
        else:
            wanted = _WANTED.get(self._kind, "a valid value")
        raise typer.BadParameter(
            f"{shown(str(value))} is not {wanted}.",
            ctx=ctx,
            param=param,
            param_hint=_places(param, ctx) if self._kind is str else None,
        )


def _places(param: Any, ctx: Any) -> list[str] | None:
    """Return the arguments that the message for an invalid word names, or None for `param` alone.
    The peer or role can be left out before a prompt, so the word may be part of the prompt."""
    names = {each.name for each in ctx.command.params}
    if param.name not in ("peer", "role") or param.opts != [param.name] or "prompt" not in names:
        return None
    if param.name == "peer" and ctx.meta.get(AFTER_DASHES) is not None:
        # The command is the agent, so all words before it are the prompt.
        return ["PROMPT"]
    return [param.name.upper(), "PROMPT"]


def converter_for(annotation: Any) -> Converter | None:
    """Return the converter for a type: text, numbers, paths, enumerations, optional types and lists
    of these. None for other types."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [each for each in get_args(annotation) if each is not type(None)]
        if len(kinds) != 1:
            return None
        (annotation,) = kinds
    many = get_origin(annotation) is list
    if many:
        (annotation,) = get_args(annotation)
    if not isinstance(annotation, type):
        return None
    if annotation in SIMPLE or issubclass(annotation, enum.Enum):
        return Converter(annotation, many=many)
    return None


def quicken(command: Any) -> None:
    """Make a command and its subcommands convert their values with this module."""
    all_params = command.get_params

    # The help option is not in `params`; click creates it on demand.
    def get_params(ctx: Any) -> list[Any]:
        params: list[Any] = all_params(ctx)
        for param in params:
            _quicken(param)
        return params

    command.get_params = get_params
    for below in getattr(command, "commands", {}).values():
        quicken(below)


def _quicken(param: Any) -> None:
    described = getattr(param, "type_descriptor", None)
    info = getattr(described, "parameter_info", None)
    # The hook where typer looks up a converter; a version without it keeps its own.
    if info is None or not hasattr(type(param), "get_runtime_param") or _checked(info):
        return
    converter = converter_for(getattr(described, "annotation", None))
    if converter is not None:
        param.get_runtime_param = lambda: converter


def _checked(info: Any) -> bool:
    """Return whether typer has more to check than the type: a range, or that a file exists."""
    names = ("min", "max", "exists", "resolve_path", "parser", "click_type", "formats")
    return any(getattr(info, name, None) not in (None, False) for name in names)

"""Convert TOML data to typed values, and reject unknown keys, wrong types and secrets.

Settings and descriptors share these checks. A `ConfigInvalid` error names the path of the key and
suggests the nearest known key. The msgspec types define which keys exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from dragoman.decoders import convert_typed
from dragoman.errors import ConfigInvalid
from dragoman.errors.usage import nearest

if TYPE_CHECKING:
    from msgspec import inspect

T = TypeVar("T")

SECRET_WORD: Final = re.compile(r"(?:[?&;]|^-{1,2})([A-Za-z][A-Za-z0-9_\-]{0,60})[=:]([^&;\s]+)")
"""Matches a name with a value inside a text: in the query of a URL, or as an option."""

ELSEWHERE: Final = ("/", "./", "../", "~", "$", "-", "{")
"""Prefixes of values that only say where a secret is."""

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ROLE: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
"""The form of a role's name."""

ADVICE: Final = (
    "looks like a secret, and dragoman's files must not contain secrets: set it as an environment "
    "variable, and add the name of the variable to an `env` list"
)


SHOWN_SIZE: Final = 80
"""Maximum length of a quoted word from a file, in characters."""

MAX_MISTAKES: Final = 20
"""Maximum number of mistakes in one file to report at once."""

MAX_DEPTH: Final = 50
"""Maximum nesting depth of tables. Settings have three levels; a file with thousands is an
attack."""


def convert(data: Any, kind: type[T], *, origin: str, base: str = "") -> T:
    """Convert `data` to the type `kind`. `base` is the key of `data` in the file `origin`. Raises
    `ConfigInvalid`."""
    try:
        return convert_typed(data, kind)
    except msgspec.ValidationError as error:
        # Only now, because inspecting the types costs ten times as much as the conversion.
        unknown_keys(data, kind, origin=origin, base=base)
        problem, _, place = str(error).partition(" - at `$")
        place = place.removesuffix("`")
        if "[...]" in place:
            place = _with_names(data, kind, place)
        key = base + re.sub(r"\[\.\.\.\]", "", place)
        raise ConfigInvalid(origin, _plain(problem), key=key.lstrip(".")) from error


def _with_names(data: Any, kind: type, place: str) -> str:
    """Return the place of a mistake with the name of the table in it, such as ``.peer.codex.env``.
    The decoder reports ``[...]`` for every name."""
    head, _, rest = place.partition("[...]")
    name = head.lstrip(".")
    tables = data.get(name) if isinstance(data, Mapping) else None
    for each, table in tables.items() if isinstance(tables, Mapping) else ():
        try:
            convert_typed({name: {each: table}}, kind)
        except msgspec.ValidationError as error:
            if str(error).endswith(f"`${place}`"):
                return f"{head}.{short(str(each))}{rest}"
    return place


def with_all_mistakes(
    check: Callable[[Mapping[str, Any]], T], table: Mapping[str, Any], *, origin: str
) -> T:
    """Return the result of `check` for a table. If it raises `ConfigInvalid`, the rest of the table
    is checked without the invalid part, and one error reports all mistakes, up to
    `MAX_MISTAKES`."""
    found: list[ConfigInvalid] = []
    left: Mapping[str, Any] | None = table
    while left is not None and len(found) < MAX_MISTAKES:
        try:
            checked = check(left)
        except ConfigInvalid as error:
            found.append(error)
            left = _without(left, error.key)
        else:
            if not found:
                return checked
            break
    first, *others = found
    if not others:
        raise first
    raise ConfigInvalid(origin, first.problem, key=first.key, others=others) from first


def _without(table: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """Return a table without a dotted key, or without the list that contains the key, or None if
    the key does not exist."""
    name, _, rest = key.partition(".")
    name, in_list, _ = name.partition("[")
    if name not in table:
        return None
    copied = dict(table)
    inner = copied.pop(name)
    if rest and not in_list and isinstance(inner, Mapping):
        smaller = _without(inner, rest)
        if smaller is None:
            return None
        copied[name] = smaller
    return copied


def unknown_keys(data: Any, kind: type, *, origin: str, base: str = "") -> None:
    """Raise `ConfigInvalid` for a key that the type does not have, or a text value that it does not
    allow."""
    from msgspec import inspect

    _keys(data, inspect.type_info(kind), origin, base)


def _keys(data: Any, kind: inspect.Type, origin: str, path: str) -> None:
    from msgspec import inspect

    if isinstance(kind, inspect.StructType) and isinstance(data, Mapping):
        fields = {field.encode_name: field.type for field in kind.fields}
        for key, value in data.items():
            here = _below(path, key)
            if key not in fields:
                close = nearest(str(key), fields)
                advice = (
                    f"did you mean `{close[0]}`?"
                    if close
                    else f"the keys here are {', '.join(fields)}"
                )
                raise ConfigInvalid(origin, f"there is no such key; {advice}", key=here)
            _keys(value, fields[key], origin, here)
    elif isinstance(kind, inspect.DictType) and isinstance(data, Mapping):
        for key, value in data.items():
            _keys(value, kind.value_type, origin, _below(path, key))
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType) and isinstance(data, list):
        for number, value in enumerate(data):
            _keys(value, kind.item_type, origin, f"{path}[{number}]")
    elif isinstance(data, str):
        _word(data, kind, origin, path)


def _word(word: str, kind: inspect.Type, origin: str, path: str) -> None:
    """Reject a word that is not one of the allowed words, and suggest the nearest one, or list them
    all if none is near."""
    from msgspec import inspect

    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    words = [
        value
        for each in kinds
        if isinstance(each, inspect.LiteralType)
        for value in each.values
        if isinstance(value, str)
    ]
    if words and word not in words and not any(isinstance(each, inspect.StrType) for each in kinds):
        close = nearest(word, words)
        number = any(isinstance(each, inspect.FloatType | inspect.IntType) for each in kinds)
        allowed = f"a number or {_listed(words)}" if number else _listed(words)
        advice = f"did you mean {close[0]!r}?" if close else f"use {allowed}"
        raise ConfigInvalid(
            origin, f"{short(word)!r} is not a valid value here; {advice}", key=path
        )


def short(word: str) -> str:
    """Shorten a word from a file for display."""
    return word if len(word) <= SHOWN_SIZE else word[: SHOWN_SIZE - 1] + "…"


def _below(path: str, key: object) -> str:
    return f"{path}.{short(str(key))}" if path else short(str(key))


def _listed(words: list[str]) -> str:
    return " or ".join(map(repr, words))


def _plain(problem: str) -> str:
    """Rephrase the decoder's message in TOML terms."""
    # A setting that may be left out is not a value of its own.
    problem = problem.replace(" | null`", "`")
    for theirs, ours in (
        ("`str`", "a string"),
        ("`int | float`", "a number"),
        ("`float`", "a number"),
        ("`int`", "a whole number"),
        ("`bool`", "true or false"),
        ("`array`", "a list"),
        ("`object`", "a table"),
        ("`null`", "nothing"),
    ):
        problem = problem.replace(theirs, ours)
    problem = problem.replace("Object missing required field", "it lacks the key")
    return problem[:1].lower() + problem[1:]


def refuse_secrets(data: Any, *, origin: str, base: str = "") -> None:
    """Raise `ConfigInvalid` for a value that looks like a secret, by its form or by its key."""
    # Not at the top: without settings files there is nothing to check.
    from dragoman.redaction.shapes import looks_like_a_secret

    for path, name, value in _texts(data, base, "", origin):
        known_look = looks_like_a_secret(value)
        if (
            known_look
            or _named_secret(name, value)
            or any(_named_secret(*found.groups()) for found in SECRET_WORD.finditer(value))
        ):
            raise ConfigInvalid(origin, f"this value {ADVICE}", key=path)


def _named_secret(name: str, value: str) -> bool:
    """Return whether a value counts as a secret because of the name it is stored under. Paths,
    references to variables and command-line options do not."""
    if value.startswith(ELSEWHERE) and not value.startswith("-----"):
        return False
    from dragoman.redaction.names import SECRET_NAME

    return SECRET_NAME.search(name) is not None and _random_looking(value)


def _random_looking(value: str) -> bool:
    """Return whether a value under a secret-looking name may be a secret, and not a word or a
    variable."""
    return (
        len(value) >= 8
        and " " not in value
        and VARIABLE.fullmatch(value) is None
        or (
            len(value) >= 16 and any(c.isdigit() for c in value) and any(c.islower() for c in value)
        )
    )


def _texts(
    data: Any, path: str, name: str, origin: str, depth: int = MAX_DEPTH
) -> Iterator[tuple[str, str, str]]:
    if isinstance(data, str):
        yield path, name, data
        return
    if depth == 0:
        raise ConfigInvalid(
            origin, f"its tables and lists are nested more than {MAX_DEPTH} levels deep"
        )
    if isinstance(data, Mapping):
        for key, value in data.items():
            # A secret in a key is as exposed as one in a value.
            yield path, "", str(key)
            yield from _texts(value, _below(path, key), str(key), origin, depth - 1)
    elif isinstance(data, list | tuple):
        before = ""
        for number, value in enumerate(data):
            # In a command line the name is in the word before the value.
            called = before if before.startswith("-") else name
            yield from _texts(value, f"{path}[{number}]", called, origin, depth - 1)
            before = value if isinstance(value, str) else ""

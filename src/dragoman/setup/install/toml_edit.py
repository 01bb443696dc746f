"""Insert, update or remove one table in a TOML text, and keep the rest of the text.

A new table is added at the end; an existing one is updated key by key, and other keys stay. The
result is parsed again before it is returned. `entries` handles files.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from dragoman.setup.install.json_edit import Unfit, Update

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


def put(text: str, path: tuple[str, str], update: Update) -> str:
    """Insert or update the table at `path`, a section and a name in it, and return the new text.

    Raises `tomllib.TOMLDecodeError` if the text cannot be parsed, and `Unfit` if the section or the
    entry is not a table, or if more than the entry would change.
    """
    section, name = path
    data = tomllib.loads(text)
    around = data.get(section, {})
    if not isinstance(around, dict):
        raise Unfit(f"`{section}` is not a table")
    old = around.get(name)
    if old is not None and not isinstance(old, dict):
        raise Unfit(f"`{section}.{name}` is not a table")
    wanted = update(old)
    meant = deepcopy(data)
    meant.setdefault(section, {})[name] = {**(old or {}), **wanted}
    if old is None:
        done = _appended(text, path, wanted)
        if _reads_as(done, meant):
            return done
    elif all(key in old and old[key] == value for key, value in wanted.items()):
        return text
    done = _changed(text, path, wanted)
    if not _reads_as(done, meant) or (old is not None and _landmarks(done) != _landmarks(text)):
        raise Unfit(f"changing `{section}.{name}` would change other parts of the file")
    return done


def remove(text: str, path: tuple[str, str], require_ours: Callable[[Any], None]) -> str:
    """Return the text without the table at `path`; unchanged if there is none.

    `require_ours` raises for a table that must not be removed. Raises `tomllib.TOMLDecodeError` if
    the text cannot be parsed, and `Unfit` if the table is written in a way that cannot be cut out.
    """
    section, name = path
    data = tomllib.loads(text)
    around = data.get(section)
    if not isinstance(around, dict) or name not in around:
        return text
    require_ours(around[name])
    meant = deepcopy(data)
    del meant[section][name]
    emptied = {key: value for key, value in meant.items() if key != section or value}
    for cut in (_without_lines, _without_item):
        done = cut(text, path)
        if done is not None and (_reads_as(done, meant) or _reads_as(done, emptied)):
            return done
    raise Unfit(f"removing `{section}.{name}` would change other parts of the file")


def _without_lines(text: str, path: tuple[str, str]) -> str:
    """Return the text without the table and its subtables: without the lines from each of their
    headers to the last value below it."""
    header = r"\s*\.\s*".join(f'(?:{re.escape(part)}|"{re.escape(part)}")' for part in path)
    ours = re.compile(rf"\s*\[\s*{header}\s*(?:\.[^\]]*)?\]\s*(?:#.*)?$")
    kept: list[str] = []
    held: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            if ours.match(line.rstrip("\r\n")):
                if not inside and kept and not kept[-1].strip():
                    # The blank line that was inserted before the header.
                    kept.pop()
                inside, held = True, []
                continue
            inside = False
            kept += held
            held = []
        if not inside:
            kept.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            held = []
        else:
            # Blank lines and comments after the last value belong to the next table.
            held.append(line)
    return "".join(kept + held)


def _without_item(text: str, path: tuple[str, str]) -> str | None:
    section, name = path
    try:
        document = tomlkit.parse(text)
        around: Any = document[section]
        del around[name]
        return document.as_string()
    except TOMLKitError:
        return None


def _appended(text: str, path: tuple[str, str], values: Mapping[str, Any]) -> str:
    eol = _eol(text)
    header = ".".join(_key(part) for part in path)
    lines = [f"[{header}]", *(f"{_key(key)} = {_value(each)}" for key, each in values.items())]
    gap = "" if not text or text.endswith("\n") else eol
    blank = eol if text.strip() else ""
    return text + gap + blank + "".join(line + eol for line in lines)


def _changed(text: str, path: tuple[str, str], values: Mapping[str, Any]) -> str:
    section, name = path
    try:
        document = tomlkit.parse(text)
        if document.as_string() != text:
            raise Unfit("it cannot be edited without changing other lines")
        around: Any = document[section]
        if name not in around:
            # In an inline table the new entry must be an inline table too.
            table = tomlkit.inline_table()
            table.update(dict(values))
            around[name] = table
        else:
            entry = around[name]
            for key, value in values.items():
                if key not in entry or entry[key] != value:
                    entry[key] = value
        done = document.as_string()
    except TOMLKitError as error:
        raise Unfit(f"`{section}.{name}` cannot be changed ({error})") from error
    if _eol(text) == "\r\n" and text.count("\n") == text.count("\r\n"):
        done = done.replace("\r\n", "\n").replace("\n", "\r\n")
    return done


def _reads_as(text: str, meant: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == meant
    except tomllib.TOMLDecodeError:
        return False


def _landmarks(text: str) -> list[str]:
    """Return the comment and header lines, in order."""
    return [line for line in text.splitlines() if line.lstrip()[:1] in ("#", "[")]


def _eol(text: str) -> str:
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _key(key: str) -> str:
    return key if _BARE.match(key) else tomlkit.string(key).as_string()


def _value(value: Any) -> str:
    return str(tomlkit.item(value).as_string())

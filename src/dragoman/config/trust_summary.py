"""List what a project's ``dragoman.toml`` would change, in short phrases for the trust prompt.

The prompt shows the whole file as well. `config.load` decides what is ignored without trust.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from dragoman.config.project import Project


def wanted(project: Project) -> list[str]:
    """Return one phrase, such as "set ttl to 60", for each change that the file would make. If
    there is none, the only phrase says so."""
    found = [*_of_settings(project.table), *_of_peers(project.table.get("peers"))]
    found += [f"run the Python code of {file}" for file in project.adapters]
    return found or ["do nothing that needs trust"]


def _of_settings(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if key == "enabled_peers":
            yield f"delegate to {_listed(value)}"
        elif key == "peer" and isinstance(value, Mapping):
            for peer, settings in value.items():
                yield from _of_one(peer, settings)
        elif key == "policy" and isinstance(value, Mapping):
            for name, what in (("rules", "rule"), ("limits", "limit")):
                for rule in _tables(value.get(name)):
                    about = [f"{word} {_listed(each)}" for word, each in rule.items()]
                    yield f"add a permission {what}: {', '.join(about)}"
        elif key not in ("peers", "hosts"):
            yield from _of_value(key, value)


def _of_value(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _of_value(f"{key}.{name}", each)
    else:
        yield f"set {key} to {_listed(value)}"


def _of_one(peer: str, settings: Any) -> Iterator[str]:
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if key == "env":
            yield f"let {peer} see the variables {_listed(value)}"
        elif isinstance(value, Mapping):
            yield from _of_value(f"peer.{peer}.{key}", value)
        else:
            yield f"set the {key} of {peer} to {_listed(value)}"


def _of_peers(peers: Any) -> Iterator[str]:
    for name, table in peers.items() if isinstance(peers, Mapping) else ():
        if not isinstance(table, Mapping):
            continue
        for launch in _tables(table.get("launch")):
            if launch.get("command"):
                yield f"start `{_command(launch['command'])}` as the peer {name}"
            if launch.get("address"):
                yield f"connect to {launch['address']} as the peer {name}"
        for key, value in table.items():
            if key == "env" and isinstance(value, Mapping):
                pairs = ", ".join(f"{variable}={text}" for variable, text in value.items())
                yield f"start {name} with {pairs}"
            elif key == "credentials" and isinstance(value, Mapping):
                names = [*_words(value.get("env")), *_words(value.get("endpoints"))]
                if names:
                    yield f"let {name} see the variables {', '.join(names)}"
            elif key == "adapter":
                yield f"use the adapter {value} for {name}"


def _tables(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _command(value: Any) -> str:
    return shlex.join(_words(value))


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _listed(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)

"""A judge made of the official JSON schema of ACP v1, which the TypeScript SDK carries.

Owns the way from a type's name to its definition. The schema allows members that it does not know,
and a misspelt name would pass; here nothing passes that it does not know.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema

from tests.peers import programs

SCHEMA = "node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"

SHAPES = ("properties", "$ref", "allOf", "anyOf", "oneOf")
"""What says something about an object's members. A schema without any takes every JSON."""


@functools.cache
def definitions() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((programs.sdk_folder() / SCHEMA).read_text())["$defs"]
    return found


def closed(schema: Any, *, whole: bool) -> Any:
    """The schema with unknown members forbidden.

    Only a schema for a `whole` value can forbid them: one that is a part of another, as in allOf,
    sees the members that its neighbours describe as unknown.
    """
    if not isinstance(schema, dict):
        return schema
    strict = dict(schema)
    for name in ("allOf", "anyOf", "oneOf"):
        if name in schema:
            strict[name] = [closed(part, whole=False) for part in schema[name]]
    if "properties" in schema:
        strict["properties"] = {
            name: closed(member, whole=True) for name, member in schema["properties"].items()
        }
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            strict[name] = closed(schema[name], whole=True)
    if whole and any(name in schema for name in SHAPES):
        strict["unevaluatedProperties"] = False
    return strict


@functools.cache
def closed_definitions() -> dict[str, Any]:
    return {name: closed(schema, whole=False) for name, schema in definitions().items()}


@functools.cache
def validator(type_name: str) -> jsonschema.Draft202012Validator:
    assert type_name in definitions()
    return jsonschema.Draft202012Validator(
        {
            "$ref": f"#/$defs/{type_name}",
            "unevaluatedProperties": False,
            "$defs": closed_definitions(),
        },
        format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
    )


def judge(type_name: str, value: Any) -> None:
    """Raise unless the value is one of the named type, and all its members are known there."""
    validator(type_name).validate({} if value is None else value)


def methods() -> dict[str, set[str]]:
    """Every method of the schema with the types that belong to it."""
    found: dict[str, set[str]] = {}
    for name, definition in definitions().items():
        if "x-method" in definition:
            found.setdefault(definition["x-method"], set()).add(name)
    return found


def update_kinds() -> set[str]:
    """Every kind of update of the schema."""
    return {
        variant["properties"]["sessionUpdate"]["const"]
        for variant in definitions()["SessionUpdate"]["oneOf"]
    }

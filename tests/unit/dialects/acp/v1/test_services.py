"""Tests of the files and terminals of a client."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def test_nothing_to_say_is_an_empty_object() -> None:
    for response in (
        v1.WriteTextFileResponse(),
        v1.KillTerminalResponse(),
        v1.ReleaseTerminalResponse(),
    ):
        assert v1.encode(response) == b"{}"


def test_null_is_read_as_nothing_to_say() -> None:
    assert v1.decode(b"null", v1.WriteTextFileResponse) == v1.WriteTextFileResponse()


def test_a_file_without_content_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"`\$\.content`"):
        v1.decode(b'{"content":null}', v1.ReadTextFileResponse)


def test_empty_values_that_are_required_are_still_sent() -> None:
    output = v1.TerminalOutputResponse(output="", truncated=False)
    assert json.loads(v1.encode(output)) == {"output": "", "truncated": False}
    assert v1.encode(v1.ReadTextFileResponse(content="")) == b'{"content":""}'


def test_an_exit_code_of_zero_is_sent() -> None:
    assert v1.encode(v1.WaitForTerminalExitResponse(exit_code=0)) == b'{"exitCode":0}'
    assert v1.encode(v1.TerminalExitStatus(exit_code=0)) == b'{"exitCode":0}'


def test_a_malformed_exit_status_is_not_an_exit_status() -> None:
    data = b'{"output":"x","truncated":false,"exitStatus":"gone"}'
    assert v1.decode(data, v1.TerminalOutputResponse).exit_status is None


def decode(value: Any, hint: Any) -> Any:
    return v1.decode(json.dumps(value).encode(), hint)


def test_each_property_has_its_type() -> None:
    form = decode(samples.FORM, v1.ElicitationSchema)
    assert {name: type(schema) for name, schema in form.properties.items()} == {
        "name": v1.StringPropertySchema,
        "channel": v1.StringPropertySchema,
        "size": v1.StringPropertySchema,
        "ratio": v1.NumberPropertySchema,
        "count": v1.IntegerPropertySchema,
        "sure": v1.BooleanPropertySchema,
        "tags": v1.MultiSelectPropertySchema,
        "titled": v1.MultiSelectPropertySchema,
    }
    assert type(form.properties["tags"].items) is v1.StringMultiSelectItems
    assert type(form.properties["titled"].items) is v1.TitledMultiSelectItems


def test_a_form_always_says_that_it_is_an_object() -> None:
    assert v1.encode(v1.ElicitationSchema()) == b'{"type":"object"}'
    assert decode({}, v1.ElicitationSchema) == v1.ElicitationSchema()


def test_an_unknown_property_is_kept_whole() -> None:
    colour = {"type": "colour", "default": "red"}
    form = decode({"properties": {"c": colour}}, v1.ElicitationSchema)
    assert form.properties["c"] == v1.UnknownPropertySchema(raw=colour)
    assert json.loads(v1.encode(form)) == {"type": "object", "properties": {"c": colour}}


def test_unknown_choices_are_kept_whole() -> None:
    field = {"type": "array", "items": {"type": "colour", "enum": ["red"]}}
    schema = decode(field, v1.ElicitationPropertySchema)
    assert isinstance(schema.items, v1.UnknownMultiSelectItems)
    assert json.loads(v1.encode(schema)) == field


def test_choices_of_no_shape_are_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="`anyOf`"):
        decode({"type": "array", "items": {}}, v1.ElicitationPropertySchema)


def test_an_unknown_format_survives() -> None:
    schema = decode({"type": "string", "format": "haiku"}, v1.ElicitationPropertySchema)
    assert schema.format == "haiku"
    assert schema.format not in set(v1.StringFormat)


@pytest.mark.parametrize("scope", [{}, {"toolCallId": "c"}, {"sessionId": None}, {"sessionId": 7}])
def test_an_elicitation_belongs_to_a_session_or_a_request(scope: dict[str, Any]) -> None:
    message = {"mode": "url", "message": "m", "elicitationId": "e", "url": "https://a.example"}
    with pytest.raises(msgspec.ValidationError, match="needs a `sessionId` or a `requestId`"):
        decode(message | scope, v1.CreateElicitationRequest)
    with pytest.raises(ValueError, match="needs a `sessionId`"):
        v1.ElicitationUrl(message="m", elicitation_id="e", url="https://a.example")


def test_a_request_may_be_the_first_one() -> None:
    message = {"mode": "url", "message": "m", "elicitationId": "e", "url": "u", "requestId": 0}
    assert decode(message, v1.CreateElicitationRequest).request_id == 0


def test_an_unknown_mode_is_kept_and_is_not_a_known_one() -> None:
    message = {"mode": "telepathy", "message": "m", "sessionId": "s", "requestedSchema": {}}
    request = decode(message, v1.CreateElicitationRequest)
    assert request == v1.UnknownElicitation(raw=message)


def test_an_unknown_action_is_kept_and_is_not_a_consent() -> None:
    answer = {"action": "postpone", "content": {"a": "x"}}
    response = decode(answer, v1.CreateElicitationResponse)
    assert isinstance(response, v1.UnknownElicitationAction)
    assert json.loads(v1.encode(response)) == answer


def test_answers_say_their_action() -> None:
    assert v1.encode(v1.ElicitationAccepted(content={"a": 1})) == (
        b'{"action":"accept","content":{"a":1}}'
    )
    assert v1.encode(v1.ElicitationDeclined()) == b'{"action":"decline"}'
    assert v1.encode(v1.ElicitationCancelled()) == b'{"action":"cancel"}'

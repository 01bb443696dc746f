"""Tests of what agents still send although no schema has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (v1.NewSessionResponse, {"sessionId": "s", "models": samples.MODELS}),
        (v1.LoadSessionResponse, {"models": samples.MODELS}),
        (v1.ResumeSessionResponse, {"models": samples.MODELS}),
    ],
)
def test_the_models_of_a_session_are_read(hint: Any, message: Any) -> None:
    response = v1.decode(json.dumps(message).encode(), hint)
    assert response.models.current_model_id == "fake-model"
    assert [model.model_id for model in response.models.available_models] == [
        "fake-model",
        "other",
    ]


def test_models_of_another_shape_do_not_fail_the_session() -> None:
    message = {"sessionId": "s", "models": ["a", "b"]}
    response = v1.decode(json.dumps(message).encode(), v1.NewSessionResponse)
    assert response.models is None
    assert json.loads(v1.encode(response)) == message


def test_the_model_is_set_by_its_id() -> None:
    request = v1.SetSessionModelRequest(session_id="s", model_id="m")
    assert json.loads(v1.encode(request)) == {"sessionId": "s", "modelId": "m"}


def test_a_variable_is_secret_and_needed_unless_it_says_otherwise() -> None:
    variable = v1.decode(b'{"name":"KEY"}', v1.AuthEnvVar)
    assert (variable.secret, variable.optional) == (True, False)

"""Tests of modes and configuration options."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def test_a_select_is_flat_or_grouped() -> None:
    flat = v1.convert(samples.SELECT, v1.SessionConfigSelect)
    grouped = v1.convert(samples.GROUPED_SELECT, v1.SessionConfigSelect)
    assert {type(entry) for entry in flat.options} == {v1.SessionConfigSelectOption}
    assert {type(entry) for entry in grouped.options} == {v1.SessionConfigSelectGroup}


def test_an_option_of_an_unknown_type_is_kept_whole() -> None:
    option = {"type": "slider", "id": "heat", "name": "Heat", "currentValue": 3}
    data = json.dumps({"configOptions": [samples.BOOLEAN, option]}).encode()
    response = v1.decode(data, v1.SetSessionConfigOptionResponse)
    assert response.config_options[1] == v1.UnknownConfigOption(raw=option)
    assert json.loads(v1.encode(response)) == json.loads(data)


def test_an_unknown_category_survives() -> None:
    option = samples.BOOLEAN | {"category": "_mine"}
    assert v1.convert(option, v1.SessionConfigBoolean).category == "_mine"
    assert "_mine" not in set(v1.SessionConfigOptionCategory)


def test_setting_a_boolean_says_its_type() -> None:
    request = v1.SetSessionConfigOptionRequest(session_id="s", config_id="c", value=False)
    assert json.loads(v1.encode(request)) == {
        "sessionId": "s",
        "configId": "c",
        "value": False,
        "type": "boolean",
    }


def test_setting_a_choice_has_no_type() -> None:
    request = v1.SetSessionConfigOptionRequest(session_id="s", config_id="c", value="fast")
    assert json.loads(v1.encode(request)) == {"sessionId": "s", "configId": "c", "value": "fast"}


def test_setting_a_number_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.decode(b'{"sessionId":"s","configId":"c","value":1}', v1.SetSessionConfigOptionRequest)


def test_a_malformed_option_is_left_out_of_the_list() -> None:
    data = json.dumps({"sessionId": "s", "configOptions": [samples.SELECT, {"type": "select"}]})
    response = v1.decode(data.encode(), v1.NewSessionResponse)
    assert response.config_options is not None
    assert len(response.config_options) == 1

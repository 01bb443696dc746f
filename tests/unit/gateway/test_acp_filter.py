"""What a client cannot take is put in other words or left out; all else passes."""

from __future__ import annotations

from typing import Any

from tests.aio import aio
from tests.unit.gateway.both_sides import scene

OPENING = {"cwd": "/workspace", "mcpServers": []}
ON = {"id": "on", "name": "On", "type": "boolean", "currentValue": True}
SIZE = {
    "id": "size",
    "name": "Size",
    "type": "select",
    "currentValue": "s",
    "options": [{"value": "s", "name": "S"}, {"value": "l", "name": "L"}],
}
MODELS = {
    "currentModelId": "m1",
    "availableModels": [{"modelId": "m1", "name": "One"}, {"modelId": "m2", "name": "Two"}],
}
BOOLEANS: dict[str, Any] = {"session": {"configOptions": {"boolean": {}}}}


def ids(options: list[dict[str, Any]]) -> list[str]:
    return [option["id"] for option in options]


@aio
async def test_an_option_that_is_on_or_off_is_for_clients_that_know_such_options() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "configOptions": [ON, SIZE]},
        "session/set_config_option": {"configOptions": [ON, SIZE]},
    }
    choice = {"sessionId": "s1", "configId": "size", "value": "l"}
    async with scene(replies=replies) as here:
        client = await here.client()
        assert ids((await client.call("session/new", OPENING))["configOptions"]) == ["size"]
        answer = await client.call("session/set_config_option", choice)
        assert ids(answer["configOptions"]) == ["size"]
        here.agent.update({"sessionUpdate": "config_option_update", "configOptions": [ON, SIZE]})
        assert ids((await client.told("session/update"))["update"]["configOptions"]) == ["size"]
    async with scene(replies=replies) as here:
        client = await here.client(**BOOLEANS)
        assert ids((await client.call("session/new", OPENING))["configOptions"]) == ["on", "size"]
        answer = await client.call("session/set_config_option", choice)
        assert ids(answer["configOptions"]) == ["on", "size"]


@aio
async def test_models_that_stand_apart_are_one_more_option_and_setting_it_sets_the_model() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "models": MODELS, "configOptions": [SIZE]},
        "session/set_model": {},
        "session/set_config_option": {"configOptions": [SIZE]},
    }
    async with scene(replies=replies) as here:
        client = await here.client(**BOOLEANS)
        opened = await client.call("session/new", OPENING)
        assert ids(opened["configOptions"]) == ["size", "model"]
        assert opened["models"] == MODELS
        choice = {"sessionId": "s1", "configId": "model", "value": "m2"}
        answer = await client.call("session/set_config_option", choice)
        assert here.agent.told("session/set_model") == [{"sessionId": "s1", "modelId": "m2"}]
        assert answer["configOptions"][1]["currentValue"] == "m2"
        choice = {"sessionId": "s1", "configId": "size", "value": "l"}
        answer = await client.call("session/set_config_option", choice)
        assert ids(answer["configOptions"]) == ["size", "model"]
        here.agent.update({"sessionUpdate": "config_option_update", "configOptions": [SIZE]})
        told = (await client.told("session/update"))["update"]
        assert ids(told["configOptions"]) == ["size", "model"]


@aio
async def test_a_way_to_log_in_that_the_client_cannot_go_is_not_offered() -> None:
    methods = [{"id": "a", "name": "A"}, {"id": "t", "name": "T", "type": "terminal", "args": []}]
    hello = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": methods, "new": 1}
    async with scene(replies={"initialize": hello}) as here:
        plain = await (await here.stranger()).hello()
        assert ([method["id"] for method in plain["authMethods"]], plain["new"]) == (["a"], 1)
        both = await (await here.stranger()).hello(auth={"terminal": True})
        assert [method["id"] for method in both["authMethods"]] == ["a", "t"]


@aio
async def test_an_update_that_cannot_be_read_passes_as_it_is() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        here.agent.say(
            {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1"}}
        )
        assert await client.told("session/update") == {"sessionId": "s1"}

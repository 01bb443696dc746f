"""An agent that asks its user to fill in a form, or to visit a page, and says what it got."""

from __future__ import annotations

import json

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError

agent = Agent("Form", version="1")

FORM = acp.ElicitationSchema(
    properties={
        "name": acp.StringPropertySchema(title="Your name", description="As on the badge"),
        "colour": acp.StringPropertySchema(enum=["red", "green"], default="green"),
        "age": acp.IntegerPropertySchema(minimum=1, maximum=150),
        "sure": acp.BooleanPropertySchema(default=True),
    },
    required=["name", "age"],
)


@agent.prompt
async def answer(turn: Turn) -> None:
    if not turn.client.can("elicitation.form"):
        await turn.say("no forms here")
        return
    if turn.text == "page":
        reply = await turn.client.ask_url("Please log in", "https://example.org/x")
        await turn.say(f"got {type(reply).__name__}")
        return
    reply = await turn.client.ask_form("Who are you?\nfake row", FORM)
    if turn.text in ("two forms", "forms and an error"):
        await turn.client.ask_form("Where are you?", FORM)
    if turn.text == "forms and an error":
        raise RemoteError(-32055, "no model left")
    content = reply.content if isinstance(reply, acp.ElicitationAccepted) else None
    await turn.say(f"got {type(reply).__name__} {json.dumps(content, sort_keys=True)}")


if __name__ == "__main__":
    agent.run()

"""An agent that wants everything from its client, and says what it got."""

from __future__ import annotations

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import DragomanError

agent = Agent("wanting")
SCHEMA = acp.ElicitationSchema(properties={"name": acp.StringPropertySchema(title="Name")})


@agent.prompt
async def answer(turn: Turn) -> None:
    await turn.say("I want:")
    path = str(turn.session.cwd / "a.txt")
    await turn.say(f" file {await turn.read_file(path)}")
    await turn.write_file(path, "written")
    try:
        async with await turn.terminal("make", ["all"]) as terminal:
            await terminal.wait()
            await turn.say(f", terminal {(await terminal.output()).output}")
    except DragomanError as error:
        await turn.say(f", no terminal: {error.error_class}")
    try:
        reply = await turn.client.ask_form("Who?", SCHEMA)
        given = reply.content if isinstance(reply, acp.ElicitationAccepted) else None
        await turn.say(f", form {given and given['name']}")
    except DragomanError as error:
        await turn.say(f", no form: {error.error_class}")


if __name__ == "__main__":
    agent.run()

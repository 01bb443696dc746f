"""A model on loopback that real agent programs can use in place of a paid one.

A small HTTP server that implements the wire formats of four model APIs. It has no model: the last
text of the user contains triggers that determine the answer. It records the requests. `triggers`
has the rules, `server` the server, and each format has its own module.

    async with FakeModel() as model:
        ...  # point an agent at model.url, prompt it, look at model.requests

By hand: ``python -m dragoman.testing.fake_model --port 0`` prints the address and serves until its
input ends.

| trigger | what the model does |
|---|---|
| none | says ``You said: `` and the text, one word per chunk |
| ``CHUNKS:n`` | says a text in n chunks |
| ``THINK`` | thinks aloud before anything else |
| ``SLOW`` | says a long text slowly, for cancelling |
| ``HOLD`` | says one word, and the rest after `FakeModel.release` |
| ``HANG`` | sends no response, not even an HTTP status |
| ``CUT`` | breaks the connection in the middle of the answer |
| ``SHELL:command`` | calls the tool that runs commands |
| ``WRITE:path:content`` | calls the tool that writes files |
| ``PLAN:step;step`` | calls the tool that sets a plan; the first step is in progress |
| ``TOOL:name:{…}`` | calls a tool by its name, or ``group.name``, with these arguments |
| ``HTTP:status`` | responds with this HTTP status and an error |
| ``HTTP:status*n`` | does this for the first n requests with this text, then answers normally |

A trigger that calls a tool must be at the start of a line, and its argument ends with the line. The
other triggers can be anywhere, as separate words. Several tool calls are made one after another.
When all results have arrived, the model says ``The tool said: `` and the last result. It takes the
names of tools and arguments from the request. A request for JSON output gets a value that fits its
schema.
"""

from dragoman.testing.fake_model.server import FakeModel, Recorded

__all__ = ["FakeModel", "Recorded"]

"""HTTP client for a fallback model that answers without an agent, tools or workspace.

`model` holds the settings, `ask` sends one prompt under time limits, `anthropic_messages` and
`openai_chat` implement the two APIs, `failures` maps their errors. The libraries come with the
extra `dragoman[local]` and are imported on first use.
"""

from dragoman.delegation.local_model.ask import LocalAnswer, ask
from dragoman.delegation.local_model.model import LocalModel

__all__ = ["LocalAnswer", "LocalModel", "ask"]

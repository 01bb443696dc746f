"""The model that answers when no peer can: asked directly, without tools and without a workspace.

This package owns the way to it: `model` says which one it is and where, `local_model.ask` asks within time
limits and says how it ended, `local_model.anthropic_messages` and `local_model.openai_chat` speak the two wire formats, and `local_model.failures`
translates what goes wrong. When to ask it is decided elsewhere. The libraries it needs are the
extra `dragoman[local]`, imported with the first question.
"""

from dragoman.delegation.local_model.ask import LocalAnswer, ask
from dragoman.delegation.local_model.model import LocalModel

__all__ = ["LocalAnswer", "LocalModel", "ask"]

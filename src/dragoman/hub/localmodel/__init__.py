"""The model that answers when no peer can: asked directly, without tools and without a workspace.

This package owns the way to it: `model` says which one it is and where, `asking` asks within time
limits and says how it ended, `messages` and `chat` speak the two wire formats, and `failures`
translates what goes wrong. When to ask it is decided elsewhere. The libraries it needs are the
extra `dragoman[local]`, imported with the first question.
"""

from dragoman.hub.localmodel.asking import LocalAnswer, ask
from dragoman.hub.localmodel.model import LocalModel

__all__ = ["LocalAnswer", "LocalModel", "ask"]

"""What happened, in one vocabulary for every dialect: a quiet room.

Owns the closed set of events (`model`), what they are made of (`parts`), the words for how things
stand (`words`), and `fold`, which turns a stream of events into what a session looks like now.
Dialects make events; everything above consumes them. Nothing here knows a wire method's name.
"""

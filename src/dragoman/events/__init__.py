"""The event model, common to all dialects. Pure: no I/O, clock, loop or logging.

`model` has the closed set of events, `parts` their components, `words` the enumerations, and `fold`
turns a stream of events into the current state of a session. Dialects make events; the packages
above consume them. Nothing here knows a wire method's name.
"""

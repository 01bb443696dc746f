"""Message formats and their meaning: one package per dialect.

A dialect defines its method names and message shapes, and their translation to events. It does no
I/O, does not wait and does not log. It does not know how bytes travel (`transports`, `rpc`), and no
dialect imports another.
"""

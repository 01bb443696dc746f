"""Message formats and their meaning: one package per dialect.

A dialect defines its method names, its message shapes and their translation to events. It does no
I/O, does not wait and does not log. `transports` and `rpc` move the bytes, and no dialect imports
another.
"""

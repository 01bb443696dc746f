"""How commands print: plain where a program reads it, readable where a person does.

`neutral` takes the power out of control characters, `terminal` knows what the output is connected
to and its colours, `tables` lays out rows, `questions` asks on a terminal. What a turn looks like
is in `text`, `jsonl` and `quiet`. Nothing here knows a command.
"""

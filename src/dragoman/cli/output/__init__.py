"""Output of commands: text for people, JSON lines for programs.

`escape` escapes control characters, `terminal` writes and colours, `tables` lays out rows,
`questions` asks on a terminal. Turns are rendered by `turn_text`, `jsonl` and `quiet`; on terminals
`live_area` redraws the last rows, and `markdown_stream` and `styled_rows` turn Markdown into rows.
No module here depends on a command.
"""

"""Entries for dragoman in the configuration files of other programs.

`clients` knows which programs there are, where each keeps its settings and what an entry looks
like; `program` knows how dragoman itself is started; `jsonc` reads JSON with comments, `json_edit`
and `toml_edit` change one entry in a text and leave every other byte; `entries` plans the change of
a file and makes it, with a backup; `skill` is the text that teaches a model the command line.
"""

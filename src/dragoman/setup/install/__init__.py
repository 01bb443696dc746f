"""Entries for dragoman in the configuration files of other programs.

`install.clients` knows which programs there are, where each keeps its settings and what an entry looks
like; `install.program` knows how dragoman itself is started; `install.jsonc` reads JSON with comments, `install.json_edit`
and `install.toml_edit` change one entry in a text and leave every other byte; `install.entries` plans the change of
a file and makes it, with a backup; `install.skill` is the text that teaches a model the command line.
"""

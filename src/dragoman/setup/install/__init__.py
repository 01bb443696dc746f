"""Install dragoman into the settings files of editors and MCP clients.

`clients` lists the programs and the form of their entries, `program` finds dragoman's own command,
`entries` edits a file with a backup, `json_edit`, `toml_edit` and `jsonc` change one entry in a
text. `cli.skill` installs the skill file.
"""

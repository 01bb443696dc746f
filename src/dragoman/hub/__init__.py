"""The hub: which agents there are, what each can do, and how it is reached by its name.

Surfaces (the command line, editors, MCP hosts) parse, call the hub, and print; what two of them
would need is decided here. The hub talks with agents through `dragoman.client` and knows no
method of any protocol.
"""

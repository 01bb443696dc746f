"""Files and terminals that a client offers to its agent, with safe defaults.

`workspace` decides what the agent may touch, `files` reads and writes text there, `terminals` runs
commands there. They depend on no protocol and no connection, and raise the `ServiceError` branch of
`dragoman.errors`; the client turns requests into calls.
"""

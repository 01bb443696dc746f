"""What a client offers to the agent it drives: files and terminals, with safe defaults.

`workspace` decides what the agent may touch, `files` reads and writes text there, `terminals` runs
commands there. They are plain Python: they know no protocol and no connection, and raise the
`ServiceError` branch of `dragoman.errors`; turning requests into calls is the client's business.
"""

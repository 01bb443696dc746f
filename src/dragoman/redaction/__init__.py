"""The redactor: defines what a secret is, and removes secrets from texts, lines and streams.

The session store, traces, logs and reports use it. `shapes` has the tables of well-known keys,
`names` the names that announce a secret, and `views` the encodings of a secret. `redactor` redacts
texts, lines and reports; `messages` redacts texts that are streamed in the messages of a trace. No
I/O, and no imports from the rest of dragoman.
"""

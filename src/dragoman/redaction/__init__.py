"""The redactor: defines what a secret is, and removes secrets from texts, lines and streams.

The session store, traces, logs and reports use it. `shapes` has the table of well-known keys,
`names` the names that announce a secret, `views` the encodings of a secret, `redactor` the search
and what else is removed from a report, and `messages` the streams of a trace. No I/O, and no
imports from the rest of dragoman.
"""

"""The redactor: defines what a secret is, and removes secrets from texts, lines and streams.

The session store, traces, logs and reports use it. `shapes` has the table of well-known keys,
`names` the names that announce a secret, `views` the encodings in which one may be written,
`redactor` the search, `messages` the streams of a trace, and `reports` what else is removed from a
report. No I/O, and no imports from the rest of dragoman.
"""

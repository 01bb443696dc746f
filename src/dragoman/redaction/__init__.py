"""The one redactor: what a secret is, and how it is taken out of texts, lines and streams.

The session store, traces, logs and reports use it. `shapes` has the table of well-known keys,
`names` the names that announce a secret, `views` the encodings in which one may be written,
`redactor` the search, `messages` the streams of a trace, and `reports` what a report loses besides.
It imports nothing of dragoman and touches nothing.
"""

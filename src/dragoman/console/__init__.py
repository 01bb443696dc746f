"""The web console: open questions, live sessions and all work, in a browser.

Requires the extra `dragoman[console]`.
"""

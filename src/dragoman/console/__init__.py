"""The web console: what waits for a person, sessions as they stream, and work, in a browser.

Needs the extra `dragoman[console]`.
"""

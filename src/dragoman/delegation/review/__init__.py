"""Review what a session changed: show its files, run the check, send comments, apply its patch.

`changes` finds the changed files, `kept_report` stores the results of a delegation for a later
review, `session_review` builds a review, runs the check and applies a patch, and `comments` turns
comments on lines into one prompt.
"""

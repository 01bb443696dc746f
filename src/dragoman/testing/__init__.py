"""Tools for testing programs that talk to agents; public, and used by dragoman's own tests.

They replace the other side or cause its failures, and they depend on no test framework. Their
behaviour is not random, so that a failing test fails again.

Each tool has its own module: `faults` has the streams with faults, `scripted` a peer that follows a
script, `storyteller` an agent that tells one story in any dialect, `reduction` what a dialect
cannot express of it, `chaos` an agent that misbehaves, `fake_model` a model for real agents, and
`conformance` the checks for agents and clients.
"""

"""Tools for testing programs that talk to agents; public, and used by dragoman's own tests.

Stand-ins for the other side and for its failures: streams with faults, scripted agents. They depend
on no test framework, and nothing here uses a clock or random numbers by itself, so that a failing
test fails again.

Each tool has its own module: `faults` has the streams with faults, `scripted` a peer that follows a
script, `storyteller` an agent that tells one story in any dialect, `fake_model` a model for real
agents, and `conformance` the checks for agents and clients.
"""

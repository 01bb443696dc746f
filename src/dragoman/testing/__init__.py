"""Tools for testing programs that talk to agents; public, and used by dragoman's own tests.

It has what stands in for the other side or for the bad luck of a real one: streams with
faults, scripted agents. It does not know any test framework, and nothing here reads a clock or
throws dice on its own, so that a failing test fails again.

Each tool is in a module of its own: `faults` has the streams with faults, `scripted` a peer that
follows a script, `storyteller` an agent that tells one story in any dialect, `fake_model` a model
for real agents, and `conformance` the checks for agents and clients.
"""

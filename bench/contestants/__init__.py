"""One small module per contestant: its client and its agent, written as users would write them.

Client and agent run as separate processes, `python -m bench.contestants.NAME client|agent …`, so
that they share nothing but the wire. All agents follow `bench.script`, so any client can be paired
with any agent. `bench.lineup` lists them.
"""

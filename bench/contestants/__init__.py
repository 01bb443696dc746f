"""One small module per contestant: its client and its agent, written as its users would write them.

Each is run in processes of its own, `python -m bench.contestants.NAME client|agent …`, so that
nothing is shared but the wire. The agents all follow `bench.script`, so any client can be paired
with any agent. `bench.lineup` is the table of them.
"""

"""Typed clients for coding agents, and what a client offers to the agents it drives."""

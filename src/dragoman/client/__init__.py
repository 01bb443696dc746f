"""Typed clients for coding agents, and the services a client offers to its agent."""

"""The version of dragoman. Agents and clients send it to each other when they connect."""

__version__ = "0.2.0"

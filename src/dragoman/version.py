"""The version of dragoman, at the bottom of all rooms: agents and clients tell it to each other."""

__version__ = "0.2.0"

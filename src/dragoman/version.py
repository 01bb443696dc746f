"""The version of dragoman, imported by every package: agents and clients tell it to each other."""

__version__ = "0.2.0"

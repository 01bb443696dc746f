"""The Agent Client Protocol, one package per major version.

The versions share a name and a handshake but not their shapes, so each package is independent: `v1`
is the version that today's agents speak.
"""

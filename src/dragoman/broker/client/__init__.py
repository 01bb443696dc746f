"""The callers' side of a broker: find or start it, connect, list and stop brokers."""

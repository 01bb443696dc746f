"""The client side of brokers: find or start one, connect to it, list and stop brokers."""

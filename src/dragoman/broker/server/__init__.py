"""The broker process: one peer, kept alive and served to many callers."""

"""Dialects that are described in documents only: oneshot, threads, tagged, keyed, chained."""

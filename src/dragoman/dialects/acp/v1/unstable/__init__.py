"""Types and methods of ACP's unstable schema, which may change or vanish at any time.

They are in `handshake`, `sessions`, `updates` and `services`; `methods` is the table of methods.
They are used only on request: with `method_table(unstable=True)` or by importing one of these
modules.
"""

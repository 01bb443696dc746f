"""What later versions of the protocol may bring, as its unstable schema has it today.

Owns types and methods that may change or vanish at any time: `handshake`, `store`, `updates`,
`services` and the table `methods`. Nothing here is used unless it is asked for, with
`method_table(unstable=True)` or by importing one of these modules.
"""

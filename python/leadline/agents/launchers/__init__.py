"""How a process is started on a host, and what carries its standard streams: one module for each kind of host.

`model` is the interface: run a command there, give its streams, and say how it ended. Whatever starts a process and
connects its streams can carry an agent; nothing here knows what agents say.
"""

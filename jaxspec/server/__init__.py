"""A server that verifies for many edges, from the device that holds the network to sockets.

1. `engine` is a target that verifies for many streams in programs of fixed shape: synchronous, one thread, no sockets.
   `interface` is what the rest of the server knows of it, without JAX.
2. `desk` decides what runs and who waits for it, by the table of `calls` and the quotas of `quotas`. Both are pure.
3. `local` is both in one process, without a socket.
4. `front` takes bytes off sockets. `requests` checks every field.
5. `service` runs an engine in a thread of its own: it computes what the desk hands out. `server` is all of it.
"""

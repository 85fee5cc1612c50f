"""A server that verifies for many edges, from the device that holds the network to sockets.

1. `engine` is a target that verifies for many streams in programs of fixed shape: synchronous, one thread, no sockets.
   `interface` is what the rest of the server knows of it, without JAX.
2. `desk` decides what runs and who waits for it, by the table of `calls` and the quotas of `quotas`. Both are pure.
3. `local` is both in one process, without a socket.
4. `service` runs an engine in a thread of its own: it computes what the desk hands out.
5. `front` answers calls by a service. `requests` checks every field. `door` is a front at a port, by gRPC.
6. `server` is all of it, in one process.
"""

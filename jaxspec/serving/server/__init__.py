"""A server that verifies for many edges, in one process.

1. `server` starts and ends it. `from_bundle` makes one of a bundle.
2. `grpc_server` opens the port. `servicer` answers calls by gRPC, checks every field by `requests`, and authenticates by
   `bearer_tokens`.
3. `engine_thread` runs the engine in a thread of its own. `dispatcher` queues its calls, by the call table of `idempotency`
   and the quotas of `quotas`; all three are pure.
4. `engine` is the target for many streams: synchronous, one thread, no sockets. `scheduler` plans its steps, `stream_table`
   has its streams and evicts idle ones, and `cache_table` has their caches. `engine_interface` is its interface for the
   rest of the server, without JAX.
5. `in_process` is the same without a thread and without sockets.
"""

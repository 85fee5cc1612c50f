"""A server that verifies for many edges: calls and their answers, quotas, tokens, sockets. Only the engine needs JAX.

1. `front` takes bytes off sockets. `requests` checks every field.
2. `desk` decides what runs and who waits for it, by the table of `calls` and the quotas of `quotas`. Both are pure.
3. `service` runs an `Engine` (`engine`) in a thread of its own: it computes what the desk hands out.
"""

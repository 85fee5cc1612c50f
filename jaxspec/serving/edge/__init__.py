"""The edge of a decode whose target is behind a link.

1. `remote_decode` decodes rows one after the other. `edge_stream` is the edge's side of one row, and `open_stream` the row
   while it is open; its compiled steps are `side_programs`.
2. `reliable_stream` numbers and retries calls, resumes a lost stream, and writes replies to a `journal`. `retries` has the
   attempts, pauses and deadlines.
3. `grpc_client` makes one attempt at one call, by `connection` and `exchange`.
4. `link_times` and `round_timing` measure rounds for drafters that choose their length by them.
"""

"""The path between the two sides of a decode.

- `edge`: the edge's side of a row. `EdgeStream` runs the loop, a `ReliableStream` retries and resumes, a journal keeps
  replies.
- `wire`: codecs of rounds (`RoundCodec`), frames, and the interface of a `Cloud`.
- `server`: the engine that verifies for many streams, in this process (`LocalCloud`) or behind a network.
"""

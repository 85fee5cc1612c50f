"""Everything that edge and server agree on; no sockets.

- `cloud` is the interface between them. `handshake` opens a stream, `framing` is the header of every message, `profiles` are
  the methods of a server.
- `round_codec` writes a round as bytes: `sqs_codec` (with `two_phase` for coding ``lazy``) and `ciar_codec`
  (`ciar_message`); `method_codecs` chooses. Numbers become bits in `distribution_bits`, `enumerative`, `rice` and
  `bitstream`.
- `traffic` counts bytes. `link_model` and `timing` compute times on a network.
"""

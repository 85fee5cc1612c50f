"""The path between the two ends of a decode: objects that speak in bytes, and the formats of the bytes.

`DraftEndpoint` and `TargetEndpoint` are the two ends. An `EdgeStream` is one row of the first, and speaks in frames to any
`Cloud`, behind which `jaxspec.serving.server` serves many. A `Wire` says what a round of one method looks like. One call is
one envelope (`envelope`), which holds one frame for each row that needs verification (`message`, `gated_message`).
"""

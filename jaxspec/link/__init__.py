"""The path between the two ends of a decode: objects that speak in bytes, and the formats of the bytes.

`DraftEndpoint` and `TargetEndpoint` are the two ends. A `Wire` says what a round of one method looks like. One call is one
envelope (`envelope`), which holds one frame for each row that needs verification (`message`, `gated_message`).
"""

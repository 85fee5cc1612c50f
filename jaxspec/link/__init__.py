"""The path between the two ends: bytes, and the host loop that exchanges them."""

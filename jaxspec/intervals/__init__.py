"""Probability intervals of a token law, what they say about its certainty, and thresholds on that (CIAR)."""

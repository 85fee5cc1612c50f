"""Probability intervals of token distributions, uncertainty scores made of them, and thresholds on the scores (CIAR)."""

"""Probability intervals of token distributions, uncertainty scores made of them, and thresholds on the scores (CIAR).

`inter_fuse` makes intervals of logits and radii, `heads` of several Inter-Heads. `interval_uncertainty` is U of their
widths, `discrete` the entropy of a set of distributions. `scores` has all scores, `merged_codes` the groups of equal codes.
`gate` compares a score with a threshold; `imposed_gate` gives the calls instead.
"""

"""Heads on the features of a network.

- Heads that draft: `eagle_head`, `block_head`, `spatial_heads`; `feature_head` has their common part.
- CIAR: `inter_head` gives probability intervals, `interval_features` gives features of the edge to the cloud.
- `diff_loss` is the output distribution of a continuous token.
"""

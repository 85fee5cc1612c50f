"""Networks, by family: `llamagen`, `janus`, and the folders `chameleon`, `language`, `mar`, `dit`, `var`.

- `registry` has all families by name. `nn` has the parts that they share, `heads` the heads on their features (EAGLE,
  Inter-Head), `tokenizers` and `text_encoders` what is before and after them.
- `guidance` is classifier-free guidance of any network; the unconditional half is the network's own, its `null_condition`.
  `conditions` is what a network is conditioned on.
- `trunk` and `feature_levels` are the interface for heads, `continuous_fns` that of continuous tokens.
"""

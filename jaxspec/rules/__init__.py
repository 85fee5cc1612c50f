"""Acceptance rules, as pure functions of a draft and the target's logits.

- Exact rules of chains: `lossless`, `lossless_sparse` for quantized distributions, `block_rule`, `greedy`. `chain_rule`
  tests the drafts in order and draws the token after a rejection.
- Exact rules of trees: `tree_rule`, `sampled_tree_rule`. Of continuous tokens, scales and denoising steps: `path_coupling`,
  `scale_rule`, `step_coupling`.
- Lossy rules: `gsd_rule` and its baseline `static_groups`, `lantern_rule`, `lantern_tree`, `lantern_greedy`, `scaled_rule`,
  `path_ratio`.
- `audited` measures the bias of any rule during a decode, by `exact_distribution`.
"""

"""Parts that several families share.

- Causal networks: `transformer` is a whole one, `causal` its cached attention, `kv_cache` the cache, `rope` and `rope_text`
  the rotary positions.
- Layers: `attention`, `linear`, `mlp`, `norm`, `conv`, `vit`, `quantizer`.
- `denoising` for DiT, `scales` for VAR, `levels` and `config_checks` for configs.
"""

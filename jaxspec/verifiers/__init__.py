"""Verifiers: a pass of the target over a draft, then an acceptance rule of `jaxspec.rules`.

- Discrete tokens: `target`, and `ciar_target` for drafters that accept tokens locally. Other tokens: `continuous_target`,
  `scale_target`, `denoising_target` and `ciar_step_target`.
- `chunk_target` verifies the streams of many edges in the server. `imposed` gives rows a chosen acceptance, for
  measurements.
"""

"""Training of networks, and of what drafts for them.

- `distillation` trains drafters on a target: draft networks, heads, edge networks.
- `train_loop` is the loop of every training, `train_step` one update; `optimizer`, `train_state`, `train_checkpoint`,
  `run_log`, `epochs` and `curves` are its parts. `run_record` guards the folder of a run against another run.
- A loss has the name of its network: `mar_loss`, `dit_loss`, `var_loss`, `vq_loss` and others. CIAR's are `inter_dro` and
  `interval_features_loss`; heads of a target have theirs beside their students in `distillation`.
"""

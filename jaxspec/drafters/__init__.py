"""Drafters: where the tokens come from that the target verifies.

- Networks: `small_model`, `eagle_chain`, `eagle_tree`, `block_drafter`, `spatial_drafter`; `continuous_model`, `scale_model`
  and `denoising_model` for other kinds of tokens.
- Without a network: `jacobi_drafter` with its first drafts `window_init`, `jacobi_tree`, `row_windows` for rows of an image,
  `ngram_drafter`, `frozen_steps`.
- Over a link: `ciar_drafter`, `ciar_scales` and `ciar_steps` accept tokens locally, `sqs_drafter` quantizes distributions.
- `length_choice` chooses the length of a draft; `auto_length` follows it for the batch, `draft_lengths` for every row.
"""

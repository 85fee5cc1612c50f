"""Measurements of images and methods.

- `scenes`: whether images of the shipped networks show what their captions say. `distances`: sets of features.
  `standard_metrics`: FID, IS and CLIP score.
- `audit` is the exact bias of tokens, `diagnosis` says which methods can speed up a target.
- `calibration` finds CIAR's thresholds, by `threshold_search` and `threshold_trials`.
"""

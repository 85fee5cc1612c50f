"""Encoders of captions: `t5` for LlamaGen's released weights, `text_encoder` a small one that is trained with its target."""

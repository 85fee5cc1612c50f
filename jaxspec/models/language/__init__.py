"""Language models: `gpt_neo`, `llama`, and `emu3`, which draws images. `language` is what they share.

`image_language` and `image_rows` are for language models whose vocabulary has image codes (Emu3, Chameleon).
"""

"""Data: the packed emoji set, painted attributes, prompts and the text tokenizer."""

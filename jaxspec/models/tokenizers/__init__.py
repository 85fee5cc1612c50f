"""Image tokenizers and autoencoders. `tokenizer_fns` is their interface, `vqgan` what the VQGAN tokenizers share."""

"""Continuous tokens: `mar` is the masked network, `masked_network` its generation order, `causal_tokens` the causal one."""

"""Chains of denoising steps, for continuous tokens and for DiT.

`schedule` has the noise schedules, `chain` draws along a chain of Gaussian steps, `ddpm` and `ddim` are the samplers.
`token_chains` (continuous tokens) and `step_payloads` (DiT) are what drafters, rules and verifiers exchange.
`diffusion_loss` is the training loss.
"""

"""DiT: `dit` is the network, `denoising_network` the interface of denoising steps for drafters and verifiers."""

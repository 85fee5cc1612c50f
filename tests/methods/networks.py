"""Tiny networks for every method, as `jaxspec.Network`s, and one decoder per method."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import methods
from jaxspec.core import orders, rng
from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.models.conditions import OrderedLabels
from jaxspec.models.dit.dit import DiTConfig, dit_fns
from jaxspec.models.heads.block_head import BlockHeadConfig, block_head_fns
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.models.heads.spatial_heads import SpatialConfig, spatial_fns
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.models.mar.causal_tokens import CausalTokensConfig, causal_token_fns
from jaxspec.models.mar.mar import MARConfig, mar_fns
from jaxspec.models.tokenizers.var_vae import VARVAEConfig, var_vae_fns
from jaxspec.models.var.var import VARConfig, var_fns
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import ContinuousSampling, DenoisingSampling, SamplingConfig, ScaleSampling
from jaxspec.sampling.scale_network import ScaleNetwork, ScaleWeights
from tests import helpers

V, N, GRID = 5, 9, (3, 3)  # Markov tables; rows of 9 tokens
_TOKENS = dict(num_tokens=4, latent_channels=2, num_classes=3, diffloss_width=8, diffloss_depth=1)
MAR = MARConfig(
  **_TOKENS, buffer_size=2, encoder_dim=8, encoder_depth=1, encoder_heads=2, decoder_dim=8, decoder_depth=1, decoder_heads=2
)
CAUSAL = CausalTokensConfig(**_TOKENS, dim=8, num_layers=1, num_heads=2)
STOPPED = ContinuousSampling("ddim5", 1)
SIDES = (1, 2, 3)
VAR = VARConfig(depth=1, dim=8, num_heads=2, vocab_size=V, code_dim=4, num_classes=3, sides=SIDES)
DIT = DiTConfig(latent_size=2, latent_channels=4, num_classes=3, dim=8, num_layers=1, num_heads=2)
STEPS = DenoisingSampling(steps=8)
VAR_VAE = VARVAEConfig(4, (1, 2), 1, codebook_size=V, codebook_dim=4, num_phis=2, sides=SIDES, num_groups=2)


@functools.cache
def markov(seed: int) -> Network:
  fns = helpers.markov_fns(V)
  return Network(fns, fns.init(jax.random.key(seed)), name=f"markov {seed}")


@functools.cache
def host() -> Network:
  """A random transformer whose features a head can continue."""
  fns = llamagen_fns(helpers.TARGET)
  return Network(fns, helpers.random_params(fns, 2), helpers.TARGET, name="host")


@functools.cache
def head() -> Network:
  fns = eagle_fns(EagleConfig.of(helpers.TARGET))
  return Network(fns, helpers.random_params(fns, 3, scale=0.15), name="head")


@functools.cache
def block_head() -> Network:
  config = BlockHeadConfig.of(helpers.TARGET)
  fns = block_head_fns(config)
  return Network(fns, helpers.random_params(fns, 3, scale=0.15), config, name="block head")


@functools.cache
def spatial_heads() -> Network:
  config = SpatialConfig.of(helpers.TARGET, num_places=7)
  fns = spatial_fns(config)
  return Network(fns, helpers.random_params(fns, 3, scale=0.15), config, name="spatial heads")


@functools.cache
def vectors(family: str, seed: int) -> Network:
  fns = mar_fns(MAR) if family == "mar" else causal_token_fns(CAUSAL)
  return Network(fns, helpers.random_params(fns, seed, scale=0.2), MAR if family == "mar" else CAUSAL, name=family)


@functools.cache
def maps(seed: int) -> Network:
  """Networks of one tokenizer."""
  fns, vae = var_fns(VAR), var_vae_fns(VAR_VAE)
  weights = ScaleWeights(helpers.random_params(fns, seed, scale=0.2), helpers.random_params(vae, 0, scale=0.2))
  return Network(ScaleNetwork(fns, vae), weights, VAR, name="maps")


@functools.cache
def states(seed: int) -> Network:
  fns = dit_fns(DIT)
  return Network(fns, helpers.random_params(fns, seed, scale=0.2), DIT, name="states")


def codebook():
  return jnp.asarray(np.random.default_rng(0).normal(size=(helpers.TARGET.vocab_size, 4)), jnp.float32)


# Small windows compile fast; other options have their defaults.
SMALL = {
  "ar": {}, "speculative": {"gamma": 3}, "sqs": {"max_drafts": 3}, "lantern": {"gamma": 3, "num_neighbours": 2},
  "sjd": {"window": 3}, "gsd": {"window": 3, "group_size": 2}, "scaled": {"window": 3},
  "eagle": {"tree_size": 4, "tree_top_k": 2, "tree_depth": 1}, "eagle-chain": {"gamma": 2},
  "eagle-lantern": {"tree_size": 4, "tree_top_k": 2, "tree_depth": 1, "num_neighbours": 2},
  "block-head": {"gamma": 3},
  "spatial": {"gamma": 3},
  "ciar": {"gamma": 3, "max_run": 3, "tau": 0.5, "score": "max_prob"}, "cspd": {"gamma": 2}, "parallel": {"num_iter": 2},
  "rows": {"width": 2}, "ngram": {"window": 2},
  "scale-speculative": {"gamma": 1}, "step-speculative": {"gamma": 2},
  "scale-ciar": {"max_window": 1, "tau": 0.8, "score": "max_prob"},
  "step-ciar": {"tau": 0.5, "max_run": 3, "score": "random"},
}  # fmt: skip


def small(name: str, **options) -> methods.Method:
  return methods.make_method(name, **(SMALL.get(name, {}) | options))


def decoder(method: methods.Method, sampling=None, **fields) -> Decoder:
  """A decoder on the smallest networks for the method; ``fields`` override its own and those of its space."""
  name = method.name
  if method.tokens == methods.SCALES:
    known = dict(target=maps(1), draft=maps(2), sampling=sampling or ScaleSampling())
  elif method.tokens == methods.DENOISING_STEPS or isinstance(sampling, DenoisingSampling):
    known = dict(target=states(1), draft=states(2), sampling=sampling or STEPS)
  elif isinstance(sampling, ContinuousSampling) or not method.fits(methods.DISCRETE):
    family = "mar" if name == "parallel" else "causal"
    known = dict(target=vectors(family, 1), draft=vectors(family, 2), sampling=sampling or STOPPED)
  else:
    known = dict(target=markov(0), draft=markov(1), sampling=sampling or SamplingConfig())
    known |= dict(space=TokenSpace(vocab_size=V, num_tokens=N, grid=GRID, codebook=lambda: codebook()[:V]))
    heads = {"eagle": head, "block_head": block_head, "spatial": spatial_heads}
    if method.draft_family in heads:
      draft = heads[method.draft_family]()
      known |= dict(target=host(), draft=draft, space=TokenSpace(num_tokens=16, grid=(4, 4), codebook=codebook))
  of_space = {field.name: fields.pop(field.name) for field in dataclasses.fields(TokenSpace) if field.name in fields}
  space = dataclasses.replace(known.get("space", TokenSpace(known["sampling"].tokens)), **of_space)
  return Decoder(**(known | dict(method=method, space=space) | fields))


def condition_of(decoder: Decoder, rows: int = 2):
  labels = helpers.labels(rows)
  if decoder.method.name != "parallel":
    return labels
  keys = rng.row_keys(jax.random.key(9), rows)
  return OrderedLabels(labels.labels, orders.random_order(keys, decoder.context.space.num_tokens))


def traced(decoder: Decoder, rows: int = 2, **options):
  """The shapes of a decode; traces it and compiles nothing."""
  key_data = jax.eval_shape(lambda: jax.random.key_data(jax.random.split(jax.random.key(0), rows)))
  return jax.eval_shape(decoder.decode_fn(**options), decoder.parts.params, key_data, condition_of(decoder, rows))

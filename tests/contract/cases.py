"""One small decoder for every method, on networks that depend on all previous tokens (`tests.contract.networks`)."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import methods
from jaxspec.core import orders, rng
from jaxspec.core.token_space import TokenSpace
from jaxspec.methods import Parts
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import AnySampling, ContinuousSampling, DenoisingSampling, SamplingConfig, ScaleSampling
from jaxspec.verifiers.ciar_target import CiarVerifier
from tests import denoising_toy as denoising_toy
from tests.contract import networks
from tests.methods.networks import maps as small_maps
from tests.methods.networks import vectors as small_vectors

V, N, ROWS = 3, 6, 600
SHAPE = (networks.rows_of_table(V, N), V)
LOGITS = np.random.default_rng(0).normal(size=SHAPE)
NOISE = 0.7 * np.random.default_rng(1).normal(size=SHAPE)
NOISE[-1] = (30, 0, 0)  # a head with wrong proposals
CODES = np.asarray([[0.0, 0.1], [0.2, 0.0], [1.0, 0.9]], np.float32)
STOPPED = ContinuousSampling("ddim5", 1)
STEPS = DenoisingSampling(denoising_toy.STEPS)
EAGLE = dict(tree_size=5, tree_top_k=2, tree_depth=2)
WARPED = SamplingConfig(cfg_scale=2.0, temperature=0.4, top_k=2)


@dataclasses.dataclass(frozen=True)
class Case:
  """A method with its options and known properties.

  Attributes:
    num_alone: rows decoded alone in the default suite, by separate programs. Methods that differ only in their rule need it
      once.
    prefix: tokens that the target draws alone, if that is not an option of the method.
    widths: widths of the passes of CIAR's target, if they differ from the method's: few programs, and more pending tokens
      than a pass holds.
    history_free: see `jaxspec.testing.check_contract`.
    acceptance: share of accepted drafts, for discrete tokens; an exact method with bad drafts is only slow.
  """

  method: methods.Method
  sampling: AnySampling = SamplingConfig()
  num_alone: int = 0
  prefix: int = 0
  widths: tuple[int, ...] = ()
  history_free: bool = True
  acceptance: float | None = None

  @property
  def draws_ids(self) -> bool:
    return isinstance(self.sampling, SamplingConfig)

  @property
  def is_masked(self) -> bool:
    """Whether the method needs a masked network."""
    return self.method.name == "parallel" or getattr(self.method, "block", False)

  @functools.cached_property
  def decoder(self) -> Decoder:
    """The method on the smallest networks that it takes."""
    fields = dict(method=self.method, sampling=self.sampling)
    if self.method.tokens == methods.SCALES:
      return Decoder(small_maps(1), draft=small_maps(2), **fields)
    if self.sampling.tokens == methods.DENOISING_STEPS:
      draft = None if self.method.draft == "frozen" else denoising_toy.network(denoising_toy.NEAR)
      return Decoder(denoising_toy.network(denoising_toy.TARGET), draft=draft, **fields)
    if self.is_masked:
      target = small_vectors("mar", 1)
      # Unrelated random heads would accept no draft.
      near = dataclasses.replace(
        target, params=jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 1.05, tree))(target.params)
      )
      return Decoder(target, draft=near if self.method.draft_family else None, **fields)
    if not self.draws_ids:
      return Decoder(networks.vectors(1), draft=networks.vectors(2), **fields)
    fields |= dict(space=TokenSpace(vocab_size=V, num_tokens=N, grid=(2, 3), codebook=lambda: jnp.asarray(CODES)))
    heads = {"eagle": networks.head, "block_head": networks.block_head, "spatial": networks.spatial_heads}
    make_head = heads.get(self.method.draft_family)
    draft = networks.host(V, N, LOGITS + NOISE) if make_head is None else make_head(V, N, NOISE)
    return Decoder(networks.host(V, N, LOGITS), draft=draft, **fields)

  def parts(self) -> Parts:
    """New parts."""
    parts = dataclasses.replace(self.decoder).parts
    if self.widths:
      rule, _ = self.method.rule(self.decoder.context)
      kwargs = dict(warp=self.sampling.warp(), window=self.method.gamma, widths=self.widths)
      parts = parts._replace(verifier=CiarVerifier(self.decoder.target.fns, rule, **kwargs))
    return parts._replace(target_prefix=self.prefix) if self.prefix else parts

  @property
  def target_prefix(self) -> int:
    """Tokens that the target draws alone."""
    return self.prefix or int(N * getattr(self.method, "target_prefix", 0))

  def condition(self, rows: int):
    labels = jnp.arange(rows, dtype=jnp.int32) % networks.CLASSES
    if not self.is_masked:
      return ClassLabels(labels)
    return OrderedLabels(labels, orders.random_order(rng.row_keys(jax.random.key(9), rows), 4))

  def joint(self) -> np.ndarray:
    """The exact distribution of a class and its tokens, ``[classes] + [V] * N``, of discrete tokens that follow the
    target."""
    logits, sampling = LOGITS, self.sampling
    if sampling.is_guided:
      null = np.split(logits[:-1], networks.CLASSES + 1)[-1]
      null = np.concatenate([null] * (networks.CLASSES + 1))
      logits = null + sampling.cfg_scale * (logits[:-1] - null)
    if sampling.top_k:
      logits = np.where(logits < np.sort(logits, axis=-1)[:, -sampling.top_k, None], -np.inf, logits)
    probs = networks.softmax(logits / sampling.temperature)
    return np.stack([networks.joint(probs, V, N, label) for label in range(networks.CLASSES)]) / networks.CLASSES


SQS = methods.Sqs(max_drafts=2, ell=8, beta1=0.2, eta=0.3, alpha=0.1)
CIAR = methods.Ciar(gamma=2, max_run=2, tau=0.45, score="max_prob")
SCALES = ScaleSampling(temperature=4.0)
MAP_CIAR = methods.ScaleCiar(max_window=1, bonus=False, tau=0.3, score="random")
CASES = {
  "ar": Case(methods.Plain()),
  "ar of vectors": Case(methods.Plain(), STOPPED),
  "speculative": Case(methods.Speculative(gamma=2), WARPED, num_alone=3, prefix=3, acceptance=0.731),
  "sqs": Case(SQS, num_alone=3, prefix=2, history_free=False, acceptance=0.680),
  "lantern": Case(methods.Lantern(gamma=2, num_neighbours=1), acceptance=0.839),
  "sjd": Case(methods.Sjd(window=2, initial="left"), num_alone=3, prefix=2, history_free=False, acceptance=0.600),
  "sjd, branches": Case(
    methods.Sjd(window=3, branch=2, depth=2, initial="left"),
    num_alone=2,
    prefix=2,
    history_free=False,
  ),
  "ngram": Case(methods.Ngram(window=2), num_alone=2, prefix=2),
  "gsd": Case(methods.Gsd(window=2, group_size=2), history_free=False, acceptance=0.613),
  "scaled": Case(methods.Scaled(window=2), history_free=False, acceptance=0.848),
  "eagle": Case(methods.Eagle(**EAGLE), num_alone=3, prefix=2, acceptance=0.576),
  "eagle-chain": Case(methods.EagleChain(gamma=2), num_alone=3, prefix=2, acceptance=0.764),
  "eagle-lantern": Case(methods.EagleLantern(**EAGLE, num_neighbours=1), acceptance=0.643),
  "block-head": Case(methods.BlockHead(gamma=3), num_alone=3, prefix=2, acceptance=0.555),
  "spatial": Case(methods.Spatial(gamma=2), num_alone=3, prefix=2),
  "ciar": Case(CIAR, num_alone=3, acceptance=0.713),
  "ciar after a prefix": Case(dataclasses.replace(CIAR, target_prefix=0.34), widths=(1, 4), acceptance=0.805),
  "cspd": Case(methods.Cspd(gamma=2, target_prefix=0.34), STOPPED, num_alone=1),
  "cspd, blocks": Case(methods.Cspd(gamma=2, block=True, sigma="released"), STOPPED, num_alone=1),
  "parallel": Case(methods.Parallel(num_iter=2), STOPPED),
  "rows": Case(methods.Rows(width=2), WARPED, num_alone=2),
  "rows, windows": Case(methods.Rows(width=1, row_window=3), WARPED, num_alone=3),
  "scale-speculative": Case(methods.ScaleSpeculative(gamma=1, bonus=False), SCALES),
  "step-speculative": Case(methods.StepSpeculative(gamma=2), STEPS),
  "scale-ciar": Case(MAP_CIAR, SCALES),
  "step-ciar": Case(methods.StepCiar(max_run=3, tau=0.6, score="random"), STEPS, num_alone=2),
}
# Cases that the default suite covers by enumeration, or by other cases with the same code. Settings that change the rule or
# the drafted distribution alone are enumerated and not here; vectors under the exact rule and scales without drafts are in
# tests/core.
MORE = {
  "ngram, lookup": Case(methods.Ngram(window=3, copy="ngram", shortest=1)),
  "rows, one column": Case(methods.Rows(width=1), num_alone=1),
  "sjd, gumbel branches": Case(methods.Sjd(window=2, branch=2, recycle="gumbel", initial="above"), history_free=False),
  "speculative, block": Case(methods.Speculative(gamma=3, verify="block"), WARPED),
  "sqs, no bonus": Case(dataclasses.replace(SQS, bonus=False), history_free=False),
  "block-head, block, guided": Case(methods.BlockHead(gamma=2, verify="block"), WARPED),
  "spatial, a wide window": Case(methods.Spatial(gamma=4)),
  "sjd, certain": Case(methods.Sjd.published(window=3), history_free=False),
  "ciar, a rate": Case(methods.Ciar(gamma=2, max_run=3, cloud_rate=0.5, score="max_prob"), history_free=False),
  "step-ciar, both ends": Case(
    methods.StepCiar(max_run=3, tau=0.6, score="random", target_prefix=0.2, target_suffix=0.3), STEPS
  ),
  "step-speculative, frozen": Case(methods.StepSpeculative(gamma=3, draft="frozen", coupling="split"), STEPS),
}

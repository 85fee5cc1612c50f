"""The methods by name: which drafter, which rule, and the settings of each.

A method is a drafter and a rule; any drafter of a chain goes with any rule for chains, and trees take the rules that judge
certain candidates. Options are checked here, before
anything is loaded.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxspec.decode.compression import CompressionOptions
from jaxspec.drafters.jacobi import RECYCLING, jacobi
from jaxspec.drafters.window_init import SOURCES, WindowInit
from jaxspec.intervals.scores import make_score
from jaxspec.models.interval_features import INJECT
from jaxspec.types import AcceptFn, Array, Drafter, PyTree
from jaxspec.verifiers.distances import distance_table, neighbour_table
from jaxspec.verifiers.gsd import gsd
from jaxspec.verifiers.lantern import lantern_plus_plus
from jaxspec.verifiers.lantern_tree import lantern_tree
from jaxspec.verifiers.lossless import lossless
from jaxspec.verifiers.scaled import scaled
from jaxspec.verifiers.sparse import lossless_sparse
from jaxspec.verifiers.tree import tree_rule

VERIFY = ("exact", "lantern", "greedy")
LARGEST = 1_000_000  # of scales: products with logits stay far from where float32 ends


class Method(NamedTuple):
  """What a method is made of."""

  # chain (a small network), compressed (one under a bit budget), eagle_chain, eagle (trees), interval (a gated device),
  # jacobi; None for plain decoding
  drafter: str | None
  rule: str  # lossless, sparse (lossless on integer laws), gsd, lantern, scaled; gated: as `MethodOptions.verify` says
  title: str

  @property
  def draft_family(self) -> str | None:
    """Family of the draft network, None for a method without one."""
    families = {
      "chain": "llamagen", "compressed": "llamagen", "eagle": "eagle", "eagle_chain": "eagle", "interval": "inter_head"
    }  # fmt: skip
    return families.get(self.drafter)

  @property
  def drafts_chain(self) -> bool:
    """Whether a network drafts a chain of ``gamma`` tokens."""
    return self.drafter in ("chain", "eagle_chain")

  @property
  def is_exact(self) -> bool:
    """Whether the output follows the target's law exactly."""
    return self.rule in ("lossless", "sparse")

  @property
  def options(self) -> tuple[str, ...]:
    """The fields of `MethodOptions` that the method reads."""
    return _READ_BY_DRAFTER[self.drafter] + _READ_BY_RULE[self.rule]


_READ_BY_DRAFTER = {
  None: (),
  "chain": ("gamma",),
  "eagle_chain": ("gamma",),
  "compressed": CompressionOptions.names(),
  "jacobi": ("window", "recycle", "initial"),
  "eagle": ("tree_size", "tree_top_k", "tree_depth"),
  "interval": ("gamma", "max_run", "tau", "cloud_rate", "rho", "score", "combination", "early_close", "inject"),
}
_READ_BY_RULE = {
  "lossless": (),
  "sparse": (),
  "gsd": ("group_size", "max_gap", "max_distance", "distance"),
  "lantern": ("num_neighbours", "factor"),
  "scaled": ("factor",),
  "gated": ("verify", "num_neighbours", "factor"),
}

METHODS = {
  "ar": Method(None, "lossless", "plain decoding"),
  "speculative": Method("chain", "lossless", "speculative decoding"),
  "sqs": Method("compressed", "sparse", "sparse quantize-and-sample decoding"),
  "lantern": Method("chain", "lantern", "speculative decoding, relaxed by LANTERN++"),
  "sjd": Method("jacobi", "lossless", "speculative Jacobi decoding"),
  "gsd": Method("jacobi", "gsd", "grouped speculative decoding"),
  "scaled": Method("jacobi", "scaled", "Jacobi decoding with a scaled ratio"),
  "eagle": Method("eagle", "lossless", "speculative decoding with trees"),
  "eagle-chain": Method("eagle_chain", "lossless", "speculative decoding with drafted features"),
  "eagle-lantern": Method("eagle", "lantern", "speculative decoding with trees, relaxed by LANTERN++"),
  "ciar": Method("interval", "gated", "decoding on the device, with the cloud where it is uncertain"),
}


@dataclasses.dataclass(frozen=True)
class MethodOptions(CompressionOptions):
  """Settings of the methods; each method reads its own, method ``sqs`` those of `CompressionOptions`.

  Attributes:
    gamma: drafts per round of a chain.
    tree_size: nodes of a tree. EAGLE-2 takes 60, 10 and 5 for language models of billions of weights; small hosts pay
      more for a pass over many nodes (with 15, the target reads 16 tokens).
    tree_top_k: width of a beam.
    tree_depth: beams per round; a tree has one more level.
    window: drafts per pass of Jacobi decoding; the published windows of 16 tokens hold 15 drafts.
    recycle: ``fresh`` or ``coupled`` drafts of a Jacobi window (see `jaxspec.jacobi`).
    initial: where new places of a window copy from: ``uniform``, ``left``, ``above`` or ``diagonal``.
    group_size: G of GSD; ``max_gap`` its delta and ``max_distance`` its d, a squared distance.
    distance: the vectors of that distance: ``codebook`` rows of unit length, or the target's input ``embedding``.
    num_neighbours: k of LANTERN++; ``factor`` its lambda, also the factor of method ``scaled``.
    tau: threshold on the device's uncertainty, of method ``ciar``; None takes a calibrated one.
    cloud_rate: calls of the cloud per token that an online threshold holds; goes with no tau.
    rho: leading share of tokens that the cloud draws.
    max_run: most tokens that a device settles before rows of a batch wait for each other.
    verify: rule for a window: ``exact``, ``lantern`` (LANTERN++) or ``greedy``.
    score: how uncertain the device is, see `jaxspec.intervals.scores.make_score`; thresholds of a checkpoint are for
      ``interval``.
    combination: of a device's heads, ``ensemble`` or ``voting``; None as the device says.
    early_close: end a window before its first certain token.
    inject: tokens that come with interval features, of devices that have them: ``none``, ``window``, ``accepted`` (those
      that the device settled) or ``both``.
  """

  gamma: int = 4
  tree_size: int = 15
  tree_top_k: int = 4
  tree_depth: int = 3
  window: int = 15
  recycle: str = "coupled"
  initial: str = "uniform"
  group_size: int = 14
  max_gap: float = 0.15
  max_distance: float = 0.5
  distance: str = "codebook"
  num_neighbours: int = 10
  factor: float = 2.0
  tau: float | None = None
  cloud_rate: float | None = None
  rho: float = 0.0
  max_run: int = 16
  verify: str = "exact"
  score: str = "interval"
  combination: str | None = None
  early_close: bool = False
  inject: str = "none"

  def __post_init__(self):
    super().__post_init__()
    for name in ("gamma", "tree_size", "tree_top_k", "tree_depth", "window", "group_size", "num_neighbours", "max_run"):
      if getattr(self, name) < 1:
        raise ValueError(f"Must have {name} of at least 1, we instead got {getattr(self, name)}")
    if self.tree_size > (candidates := self.tree_top_k + self.tree_depth * self.tree_top_k**2):
      raise ValueError(
        f"Must have tree_size of at most the {candidates} candidates of a round (raise tree_top_k or tree_depth), "
        f"we instead got {self.tree_size}"
      )
    known = {"recycle": RECYCLING, "initial": SOURCES, "distance": ("codebook", "embedding"), "verify": VERIFY}
    known["inject"] = INJECT
    for name, choices in known.items():
      if getattr(self, name) not in choices:
        raise ValueError(f"Must have {name} in {', '.join(choices)}, we instead got {getattr(self, name)!r}")
    for name in ("max_gap", "max_distance"):
      if not getattr(self, name) >= 0:
        raise ValueError(f"Must have {name} of at least 0, we instead got {getattr(self, name)}")
    if not (math.isfinite(self.factor) and self.factor >= 1):
      raise ValueError(f"Must have a finite factor of at least 1, we instead got {self.factor}")
    if self.factor > LARGEST:
      raise ValueError(f"Must have a factor of at most {LARGEST:,}, we instead got {self.factor:g}")
    if self.tau is not None and math.isnan(self.tau):
      raise ValueError("Must have a number as tau, we instead got nan")
    if self.tau is not None and self.cloud_rate is not None:
      raise ValueError(f"Must have tau or cloud_rate, we instead got both ({self.tau} and {self.cloud_rate})")
    make_score(self.score, self.combination or "ensemble")
    for name in ("rho", "cloud_rate"):
      if (value := getattr(self, name)) is not None and not 0 <= value <= 1:
        raise ValueError(f"Must have {name} from 0 to 1, we instead got {value}")

  def drafts_per_round(self, method: str) -> int:
    """Tokens that the target reads in one round besides the last committed one."""
    sizes = {
      "chain": self.gamma, "eagle_chain": self.gamma, "compressed": self.max_drafts, "jacobi": self.window,
      "eagle": self.tree_size, "interval": self.max_run + self.gamma,
    }  # fmt: skip
    return {None: 0, **sizes}[METHODS[method].drafter]


def get_method(name: str) -> Method:
  """The method of a name.

  Raises:
    ValueError: for an unknown one.
  """
  if name not in METHODS:
    raise ValueError(f"Must have a method in {', '.join(METHODS)}, we instead got {name!r}")
  return METHODS[name]


def make_tree_rule(rule: str, options: MethodOptions, *, codebook: Array | None) -> tuple[AcceptFn, PyTree]:
  """A rule for trees of certain candidates and the tables it reads; arguments as in `make_rule`.

  Raises:
    ValueError: if a table cannot be made, or for a rule that compares a draft with the law it was drawn from.
  """
  max_path = options.tree_depth + 1
  if rule == "lossless":
    return tree_rule(max_path=max_path), ()
  if rule != "lantern":
    raise ValueError(f"Must have rule lossless or lantern for trees, whose candidates are certain; we instead got {rule}")
  relaxed, table = make_rule(rule, options, embedding=None, codebook=codebook)
  return tree_rule(lantern_tree(relaxed), max_path=max_path), table


def make_rule(
  rule: str, options: MethodOptions, *, embedding: Array | None, codebook: Array | None
) -> tuple[AcceptFn, PyTree]:
  """A rule for chains and the tables it reads.

  Args:
    embedding: ``[V, D]`` input embeddings of the target.
    codebook: ``[V, C]`` rows of the picture tokenizer.
  Raises:
    ValueError: if a table cannot be made.
  """
  if rule == "lossless":
    return lossless, ()
  if rule == "sparse":
    return lossless_sparse, ()
  if rule == "scaled":
    return scaled(options.factor), ()
  if rule == "lantern":
    vectors = _need(codebook, "codebook of the picture tokenizer", rule)
    count = options.num_neighbours
    return lantern_plus_plus(count, options.factor), neighbour_table(vectors, count)
  if options.distance == "codebook":
    vectors = _need(codebook, "codebook of the picture tokenizer", rule)
    vectors = vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
  else:
    vectors = _need(embedding, "target with input embeddings", rule)
  table = distance_table(vectors, source=options.distance)
  return gsd(options.group_size, options.max_gap, options.max_distance), table


def make_jacobi(options: MethodOptions, *, vocab_size: int | None, grid: int | None) -> Drafter:
  """The Jacobi drafter of the options.

  Raises:
    ValueError: if the vocabulary (or, for an initial draft with a neighbour, the grid) is not given.
  """
  if vocab_size is None or (grid is None and options.initial != "uniform"):
    raise ValueError("Must have vocab_size (and grid, for initial drafts with a neighbour) for Jacobi decoding")
  initial = WindowInit(options.initial, "sample")
  return jacobi(window=options.window, vocab_size=vocab_size, grid=grid or 1, initial=initial, recycle=options.recycle)


def _need(value: Any, what: str, rule: str) -> Any:
  if value is None:
    raise ValueError(f"Must have the {what} for rule {rule}, we instead got none")
  return value

"""Decodes of the shipped pairs of vector tokens: the shared driver of the ``cspd_*`` tables.

`Bench` loads a bundle once per family and compiles every method once. What a method drew is kept under ``runs/cspd``, named
after the weights, the method, the classes and the seed, so that a killed run goes on and tables share decodes.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.tables import provenance, typed_command
from jaxspec import orders
from jaxspec.cli import compilation_cache, decoding
from jaxspec.decode.class_methods import ClassMethod, ClassTokens, class_decode, signal_of
from jaxspec.decode.state import Counters, Origin
from jaxspec.decode.token_methods import TokenSampling
from jaxspec.metrics.bootstrap import bootstrap
from jaxspec.metrics.evaluators import in_batches
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.kl_vae import to_uint8
from jaxspec.token_bundle import TokenBundle, load_token_bundle
from jaxspec.verifiers.path_coupling import PathCoupling
from jaxspec.verifiers.path_ratio import PathRatio
from jaxspec.verifiers.token_rule import TokenReport, TokenRule

BUNDLES = {"mar": "checkpoints/classes64", "causal": "checkpoints/classes64-causal"}
TITLES = {"mar": "MAR pair", "causal": "causal pair"}
RULES: dict[str, TokenRule] = {
  "published": PathRatio(),
  "published, not aligned": PathRatio(align=False),
  "without S": PathRatio("none"),
  "without S, not aligned": PathRatio("none", align=False),
  "released": PathRatio("released", inner_temperature=42.0),
  "released, not aligned": PathRatio("released", align=False, inner_temperature=42.0),
  "exact": PathCoupling(),
}
MOST_TRIES = 100  # proposals for one token that are counted one by one


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of a table: a pair of networks, and how it draws."""

  family: str
  label: str
  method: ClassMethod
  seed: int = 0


class Drawn(NamedTuple):
  """What a row drew; numpy leaves ``[P, ...]``."""

  out: ClassTokens
  in_order: np.ndarray | None  # [P, L] int8, origins in generation order


class Bench:
  """Networks and programs, made once."""

  def __init__(self, folder: Path, bundles: dict[str, str] | None = None):
    self.folder, self._paths = folder, BUNDLES if bundles is None else bundles
    self._programs: dict[tuple[str, ClassMethod, int], tuple[Any, Callable]] = {}

  @functools.cache
  def bundle(self, family: str) -> TokenBundle:
    return load_token_bundle(self._paths[family])

  def method(self, family: str, name: str = "cspd", *, stop: int | None | str = "trained", **options: Any) -> ClassMethod:
    """A method with the chains that the networks were trained for.

    Args:
      stop: another end of the chains.
      options: of `ClassMethod`; ``scale`` and ``temperature`` are those of `TokenSampling`, ``rule`` a name of `RULES`.
    """
    defaults = self.bundle(family).defaults
    chosen = {key: options.pop(key) for key in ("scale", "temperature") if key in options}
    end = defaults.get("stop") if stop == "trained" else stop
    whole = options.get("num_tokens") is None and bool(end)
    options.setdefault("refine", whole and defaults.get("refine", False))
    if isinstance(rule := options.get("rule"), str):
      options["rule"] = RULES[rule]
    return ClassMethod(name, TokenSampling(defaults["steps"], end, **chosen), **options)

  def batches(self, labels: np.ndarray, rows: int, seed: int) -> decoding.Batches:
    return decoding.make_batches(ClassLabels(np.asarray(labels, np.int32)), samples=1, seed=seed, rows=rows)

  def program(self, row: Row, rows: int) -> tuple[Any, Callable]:
    """Parameters and the compiled decode of batches of ``rows``."""
    key = (row.family, row.method, rows)
    if key not in self._programs:
      params, decode = class_decode(self.bundle(row.family), row.method)
      example = self.batches(np.zeros(rows, np.int32), rows, 0)
      compiled = jax.jit(decode).lower(params, example.key_data[0], example.condition[0]).compile()
      self._programs[key] = params, compiled
    return self._programs[key]

  def draw(self, row: Row, labels: np.ndarray, rows: int = 16) -> Drawn:
    """Tokens of one picture per label; from the folder if they are there."""
    file = self.folder / f"{self._digest(row, labels)}.npz"
    batches = self.batches(labels, rows, row.seed)
    if not file.is_file():
      params, decode = self.program(row, rows)
      parts = [jax.device_get(decode(params, k, c)) for k, c in zip(batches.key_data, batches.condition)]
      out = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(labels)], *parts)
      arrays = {f"counters.{name}": getattr(out.counters, name) for name in Counters.__dataclass_fields__}
      arrays |= {"tokens": out.tokens}
      if out.report is not None:
        arrays |= {"origin": out.origin, "commit_round": out.commit_round}
        arrays |= {f"report.{name}": getattr(out.report, name) for name in TokenReport._fields}
      self.folder.mkdir(parents=True, exist_ok=True)
      partial = file.with_suffix(".partial.npz")
      np.savez_compressed(partial, **arrays)
      partial.replace(file)
    with np.load(file) as stored:
      counters = Counters(**{name: stored[f"counters.{name}"] for name in Counters.__dataclass_fields__})
      if "origin" not in stored:
        return Drawn(ClassTokens(stored["tokens"], counters), None)
      report = TokenReport(*(stored[f"report.{name}"] for name in TokenReport._fields))
      out = ClassTokens(stored["tokens"], counters, stored["origin"], stored["commit_round"], report)
    order = self.order(row, labels, rows)
    return Drawn(out, out.origin if order is None else np.take_along_axis(out.origin, order, axis=1))

  def order(self, row: Row, labels: np.ndarray, rows: int) -> np.ndarray | None:
    """Places ``[P, L]`` in the order of their generation, of a masked network; None where it is the raster's."""
    bundle = self.bundle(row.family)
    if not bundle.is_masked:
      return None
    keys = jax.random.wrap_key_data(np.concatenate(self.batches(labels, rows, row.seed).key_data)[: len(labels)])
    return np.asarray(orders.random_order(keys, bundle.target.config.num_tokens))

  def pixels(self, row: Row, tokens: np.ndarray, batch: int = 32) -> np.ndarray:
    """Pictures ``[P, H, W, 3]`` uint8 of tokens."""
    bundle = self.bundle(row.family)
    draw = self._painter(row.family, signal_of(row.method))
    return in_batches(lambda part: draw(bundle.vae.params, part), tokens, batch=batch)

  @functools.cache
  def _painter(self, family: str, signal: float) -> Callable:
    bundle = self.bundle(family)
    return jax.jit(lambda params, tokens: to_uint8(bundle.pictures(params, tokens, signal)))

  def _digest(self, row: Row, labels: np.ndarray) -> str:
    bundle = self.bundle(row.family)
    method = json.dumps(describe(row.method), sort_keys=True)
    about = [self.weights(row.family), method, str(row.seed), np.asarray(labels, np.int32).tobytes().hex()]
    return f"{bundle.path.name}-{hashlib.sha256('|'.join(about).encode()).hexdigest()[:16]}"

  @functools.cache
  def weights(self, family: str) -> str:
    """Digest of all networks of a bundle."""
    files = sorted(self.bundle(family).path.glob("*/params.safetensors"))
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()


def describe(method: ClassMethod) -> dict[str, Any]:
  """A method as JSON; the same in every process."""
  found = dataclasses.asdict(method)
  found["sampling"]["guidance_fn"] = method.sampling.guidance_fn.__name__
  if method.rule is not None:
    found["rule"] = {"name": type(method.rule).__name__, **dataclasses.asdict(method.rule)}
  return found


def every_class(bundle: TokenBundle, num: int, seed: int = 0) -> np.ndarray:
  """``num`` labels: every class once in a random order, then again."""
  generator, size = np.random.default_rng(seed), len(bundle.classes)
  return np.concatenate([generator.permutation(size) for _ in range(-(-num // size))])[:num].astype(np.int32)


def figures(drawn: Drawn) -> dict[str, Any]:
  """What was counted, with 95 % bootstrap intervals over pictures; JSON."""
  counters = {name: getattr(drawn.out.counters, name) for name in Counters.__dataclass_fields__}
  found: dict[str, Any] = {"pictures": len(drawn.out.tokens)} | {k: int(v.sum()) for k, v in counters.items()}
  found["calls_per_picture"] = float(counters["target_calls"].mean())
  if found["drafted"]:
    tested = np.stack([(drawn.in_order == o).sum(axis=1) for o in (Origin.DRAFT, Origin.REPLACED)], axis=1)
    # Drafts behind a refusal are never tested: alpha counts those that were, the published "acceptance rate" may not.
    found["alpha"] = bootstrap(lambda t: t[:, 0].sum() / max(t.sum(), 1), tested)._asdict()
    found["kept"] = found["accepted"] / found["drafted"]
    tries = drawn.out.report.tries[drawn.out.origin == Origin.REPLACED]
    found["mean_tries"] = float(tries.mean()) if tries.size else None
    found["fallbacks"] = int(drawn.out.report.fallback.sum())
    # How many refusals took 0, 1, ... proposals; the last entry is all beyond.
    found["tries"] = np.bincount(np.minimum(tries, MOST_TRIES + 1), minlength=MOST_TRIES + 2).tolist()
    found["kept_steps"] = float(drawn.out.report.steps[drawn.out.origin == Origin.REPLACED].mean()) if tries.size else None
  return found


def origin_of(bench: Bench, family: str) -> dict[str, Any]:
  """What a table says of where its figures come from; JSON."""
  return {
    "family": family,
    "bundle": bench.bundle(family).path.name,
    "weights": bench.weights(family)[:16],
    **provenance(),
  }


def parser(doc: str, bundles: dict[str, str] = BUNDLES) -> argparse.ArgumentParser:
  """The arguments that all tables share; ``bundles`` are the families that can be asked for."""
  found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  found.add_argument("--runs", type=Path, default=Path("runs/cspd"))
  found.add_argument("--results", type=Path, default=Path("experiments/results"))
  for family, path in bundles.items():
    found.add_argument(f"--{family}", default=path, metavar="BUNDLE", help=f"{TITLES[family]}, {path} by default")
  found.add_argument("--family", action="append", choices=list(bundles), help="repeat for several; all by default")
  return found


def start(args: argparse.Namespace) -> tuple[Bench, list[str], str]:
  """The bench, the families that are asked for, and the command as it was typed."""
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  compilation_cache.enable()
  bundles = {family: path for family in TITLES if (path := getattr(args, family, None))}
  return Bench(args.runs, bundles), args.family or list(bundles), typed_command()

"""Cuts a draft out of a language model of the Llama family: its first layers, with a trained head on its output matrix.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.data.smollm2 weights/smollm2
    python -m experiments.data.pack_text --out runs/wordnet
    python -m experiments.train.cut_draft weights/smollm2 weights/smollm2-draft
    jaxspec generate --text "Once upon a time" --model weights/smollm2 --draft-model weights/smollm2-draft --method sqs

1. The target continues the first words of WordNet lines: texts as the draft will meet them.
2. The head, an affine map in front of the target's own output matrix, starts as the least-squares map from the cut network's
   features to the target's.
3. Layers and head learn the target's distributions; the output matrix is the target's, frozen. The acceptance of the cut
   network as it is, and of the least-squares head alone, is printed beside the trained one.

Acceptance is one minus the total variation from the target's distribution at temperature 1 (Leviathan et al. 2023, Theorem
3.5), on texts that were held out. With the defaults some 20 minutes of two processors.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from pathlib import Path

import click
import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.pack_text import END_ID, TOKENS_FILE
from experiments.train.command import Progress
from jaxspec.core.command_line import PATH, script, set_option
from jaxspec.core.network import Network
from jaxspec.core.overrides import override
from jaxspec.core.types import Array, Params
from jaxspec.io import checkpoints
from jaxspec.io.text import language_tokenizer
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.conditions import Prompt
from jaxspec.models.language.llama import LlamaConfig, llama_fns
from jaxspec.rules.exact_distribution import total_variation
from jaxspec.run.decoder import Decoder
from jaxspec.training import run_record, train_state
from jaxspec.training.common_losses import distillation_kl
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.train_loop import LoopConfig, fit
from jaxspec.training.train_step import make_train_step

EMBEDDING = "embed_tokens"  # the target's own, frozen
LICENCE_FILE = "LICENSE"
FEATURE_ROWS = 32  # texts that are read together


@dataclasses.dataclass(frozen=True)
class CutRun:
  """Everything a run depends on, besides the target.

  Attributes:
    num_layers: of the target's first layers.
    num_texts: texts that the target writes, ``prompt_tokens`` given and ``num_tokens`` in all; the last ``num_held_out`` are
      for evaluation.
    ridge: of the least-squares map, against the mean square of a feature.
  """

  seed: int = 0
  num_layers: int = 4
  num_texts: int = 320
  num_held_out: int = 64
  prompt_tokens: int = 6
  num_tokens: int = 64
  ridge: float = 0.01
  batch_size: int = 8
  optimizer: OptimizerConfig = OptimizerConfig(name="adamw", learning_rate=3e-4, warmup_steps=20, weight_decay=0.0)
  loop: LoopConfig = LoopConfig(num_steps=120, log_every=5, eval_every=60, checkpoint_every=60)
  matmul_precision: str | None = "bfloat16"
  data: str = "runs/wordnet"


def written_texts(run: CutRun, target: Network, tokenizer, file: Path, rows: int = 32) -> np.ndarray:
  """Texts ``[num_texts, num_tokens]`` int32 of the target, cached in ``file``; beginnings without end tokens."""
  fields = (run.seed, run.num_texts, run.prompt_tokens, run.num_tokens, run.data, target.path.as_posix())
  origin = json.dumps(fields)
  if file.exists():
    with np.load(file) as archive:
      if str(archive["origin"]) == origin:
        return archive["texts"]
  with np.load(Path(run.data) / TOKENS_FILE) as archive:
    packed, starts = archive["train"], archive["train_starts"]
  lines = language_tokenizer.load_tokenizer(Path(run.data))
  order = np.random.default_rng(run.seed).permutation(len(starts) - 1)
  beginnings = []
  for line in order:
    ids = [token for token in packed[starts[line] : starts[line + 1]].tolist() if token != END_ID]
    found = tokenizer.encode(lines.decode(ids)).ids[: run.prompt_tokens]
    if len(found) == run.prompt_tokens:
      beginnings.append(found)
    if len(beginnings) == run.num_texts:
      break
  decoder = Decoder(target)
  new = run.num_tokens - run.prompt_tokens
  parts = []
  for start in range(0, run.num_texts, rows):
    ids = np.asarray(beginnings[start : start + rows], np.int32)
    ids = np.concatenate([ids, np.repeat(ids[:1], rows - len(ids), axis=0)])
    key = jax.random.fold_in(jax.random.key(run.seed), start)
    written = decoder(Prompt(jnp.asarray(ids), jnp.ones_like(ids, bool)), key=key, max_len=new).tokens
    parts.append(np.concatenate([ids, written], axis=1))
    print(f"texts {min(start + rows, run.num_texts)}/{run.num_texts}", flush=True)
  texts = np.concatenate(parts)[: run.num_texts].astype(np.int32)
  file.parent.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(file, texts=texts, origin=origin)
  return texts


def cut(config: LlamaConfig, params: Params, num_layers: int) -> tuple[LlamaConfig, Params]:
  """The first layers of a network, with a head map that changes nothing.

  Raises:
    ValueError: unless the network has more layers, and ties its output matrix to its tokens.
  """
  if not 0 < num_layers < config.num_layers:
    raise ValueError(f"Must have fewer layers than the target's {config.num_layers}, and one at least, got {num_layers}")
  if not config.tie_embeddings or config.head_map:
    raise ValueError("Must have a target whose output matrix is its token table")
  small = dataclasses.replace(config, num_layers=num_layers, head_map=True)
  names = jax.eval_shape(llama_fns(small).init, jax.random.key(0))
  kept = {name: jax.tree.map(jnp.copy, params[name]) for name in names if name != "head_map"}  # updates donate theirs
  head = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), names["head_map"])
  return small, kept | {"head_map": head | {"weight": jnp.eye(config.dim)}}


def least_squares(draft_features: Array, target_features: Array, ridge: float) -> tuple[Array, Array]:
  """Weight ``[D, D]`` (out, in) and bias ``[D]`` of the affine map from ``[M, D]`` features to ``[M, D]`` others."""
  mean_in, mean_out = (jnp.mean(leaf, axis=0, keepdims=True) for leaf in (draft_features, target_features))
  x, y = draft_features - mean_in, target_features - mean_out
  gram = x.T @ x
  gram += ridge * jnp.trace(gram) / len(gram) * jnp.eye(len(gram))
  weight = jnp.linalg.solve(gram, x.T @ y)  # [in, out]
  return weight.T, (mean_out - mean_in @ weight)[0]


def train(run: CutRun, source: Path, run_dir: Path, resume: bool = True) -> tuple[LlamaConfig, Params, dict[str, float]]:
  """Cuts, fits, trains; returns the draft and its acceptance after each of the three."""
  if not run.batch_size <= run.num_held_out <= run.num_texts - FEATURE_ROWS or run.num_held_out % run.batch_size:
    raise ValueError(
      f"Must have held-out texts in whole batches of {run.batch_size}, and {FEATURE_ROWS} others, we instead got "
      f"{run.num_held_out} of {run.num_texts}"
    )
  target = checkpoints.load(source)
  if not isinstance(target.config, LlamaConfig):
    raise ValueError(f"Must have a network of the Llama family, {source} is another")
  config, params = cut(target.config, target.params, run.num_layers)
  fns = llama_fns(config)
  run_record.begin(run_dir, type(run).__name__, run, {"target": checkpoints.digest(source).hex()[:16]}, resume=resume)
  texts = written_texts(run, target, language_tokenizer.load_tokenizer(source), run_dir / "texts.npz")
  train_texts, held_out = texts[: -run.num_held_out], texts[-run.num_held_out :]
  del params[EMBEDDING]  # the target's, which `frozen` holds
  frozen = {"target": target.params}

  def whole(params, extra):
    return params | {EMBEDDING: extra["target"][EMBEDDING]}

  def loss_fn(params, extra, batch, key):
    del key
    distribution = jax.lax.stop_gradient(target.fns.apply(extra["target"], batch["tokens"])[0].logits)
    logits = fns.apply(whole(params, extra), batch["tokens"])[0].logits
    distribution, logits = (
      distribution[:, run.prompt_tokens - 1 :],
      logits[:, run.prompt_tokens - 1 :],
    )  # of the target's texts
    acceptance = 1 - jnp.mean(total_variation(jax.nn.softmax(distribution), jax.nn.softmax(logits)))
    return distillation_kl(distribution, logits), ({"acceptance": acceptance}, extra)

  compute = jax.jit(lambda params, extra, tokens: loss_fn(params, extra, {"tokens": tokens}, None)[1][0]["acceptance"])

  def acceptance(params: Params, extra) -> float:
    parts = [compute(params, extra, held_out[i : i + run.batch_size]) for i in range(0, len(held_out), run.batch_size)]
    return float(np.mean(parts))

  @jax.jit
  def features(params, extra, tokens):
    networks = (fns, whole(params, extra)), (target.fns, extra["target"])
    return [network.apply(weights, tokens, logits_at=jnp.zeros(1, jnp.int32))[0].features for network, weights in networks]

  figures = {"cut": acceptance(params, frozen)}
  starts = range(0, len(train_texts) // FEATURE_ROWS * FEATURE_ROWS, FEATURE_ROWS)
  parts = [jax.device_get(features(params, frozen, train_texts[start : start + FEATURE_ROWS])) for start in starts]
  flat = [np.concatenate([part[side].reshape(-1, config.dim) for part in parts]) for side in (0, 1)]
  weight, bias = least_squares(*flat, run.ridge)
  params["head_map"] = {"weight": weight, "bias": bias}
  figures["least_squares"] = acceptance(params, frozen)
  print(f"acceptance: cut {figures['cut']:.3f}, least squares {figures['least_squares']:.3f}", flush=True)

  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  state = train_state.create(params, optimizer, extra=frozen)
  step = make_train_step(loss_fn, optimizer, ema_decay=0.9, seed=run.seed, matmul_precision=run.matmul_precision)

  def batch_fn(number: int) -> dict[str, np.ndarray]:
    per_epoch = len(train_texts) // run.batch_size
    order = np.random.default_rng((run.seed, 1, number // per_epoch)).permutation(len(train_texts))
    at = number % per_epoch * run.batch_size
    return {"tokens": train_texts[order[at : at + run.batch_size]]}

  state = fit(
    run.loop, state, step, batch_fn, run_dir=run_dir, report_fn=Progress("draft", run.batch_size), resume=resume,
    eval_fn=lambda state: {"held_out": acceptance(state.ema, state.extra)},
  )  # fmt: skip
  figures["trained"] = acceptance(state.ema, state.extra)
  return config, whole(state.ema, state.extra), figures


@script(__doc__)
@click.argument("source", type=PATH, metavar="TARGET")
@click.argument("destination", type=PATH, metavar="DRAFT")
@click.option("--run-dir", type=PATH, default="runs/cut-draft", help="Folder of the run.")
@click.option("--resume/--no-resume", default=True, help="Continue the run in its folder, or refuse the folder.")
@set_option
def main(source: Path, destination: Path, run_dir: Path, resume: bool, assignments: tuple[str, ...]) -> None:
  logging.basicConfig(level=logging.WARNING)
  run = override(CutRun(), assignments)
  config, params, figures = train(run, source, run_dir, resume)
  licence = checkpoints.read_config(source)["meta"].get("licence", "unknown")
  meta = {"licence": licence, "command": "python -m experiments.train.cut_draft", "run": dataclasses.asdict(run)}
  checkpoints.save(destination, config, params, meta=meta | {"acceptance": figures})
  shutil.copyfile(source / TOKENIZER_FILE, destination / TOKENIZER_FILE)
  shutil.copyfile(Path(run.data) / LICENCE_FILE, destination / LICENCE_FILE)  # WordNet's, whose words began the texts
  print(" ".join(f"{name} {value:.3f}" for name, value in figures.items()))


if __name__ == "__main__":
  main()

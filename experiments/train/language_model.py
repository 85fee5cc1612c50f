"""Trains a small language model of the GPT-Neo architecture, or the much smaller draft of one.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.data.pack_text --out runs/wordnet
    python -m experiments.train.language_model --config target --run-dir runs/text-target --export runs/text/target
    python -m experiments.train.language_model --config draft --run-dir runs/text-draft --export runs/text/draft \\
      --set teacher=runs/text/target
    jaxspec generate --text "apple:" --model runs/text/target --draft-model runs/text/draft --compare

About 1.4 CPU-hours for the target (1.6 CPU-seconds per step) and a quarter of that for the draft; both are shipped in
``checkpoints/wordnet``.

Both use the vocabulary of the packed text. The draft learns the target's distributions: the expected acceptance of a draft
is one minus the total variation between the two (Leviathan et al. 2023, Theorem 3.5), which is a metric of its run.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.pack_text import END_ID, TOKENS_FILE
from experiments.train.command import Progress, command_of, main
from jaxspec.core.network import Network
from jaxspec.io import checkpoints
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.language.gpt_neo import GPTNeoConfig, gpt_neo_fns
from jaxspec.training import train_state
from jaxspec.training.common_losses import distillation_kl, token_losses
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.train_loop import LoopConfig, fit
from jaxspec.training.train_step import make_train_step


@dataclasses.dataclass(frozen=True)
class TextRun:
  """Everything a run depends on, besides the packed text.

  Attributes:
    num_tokens: tokens of a training row.
    teacher: checkpoint folder whose distributions are learnt instead of the text alone; empty goes without.
    kl_weight: share of the teacher in the loss.
  """

  seed: int = 0
  batch_size: int = 16
  num_tokens: int = 256
  model: GPTNeoConfig = GPTNeoConfig(
    vocab_size=2048, max_positions=256, dim=256, num_layers=4, num_heads=4, window_size=64, end_ids=(END_ID,)
  )
  optimizer: OptimizerConfig = OptimizerConfig(name="muon", learning_rate=3e-3, muon_learning_rate=0.02, warmup_steps=100)
  loop: LoopConfig = LoopConfig(num_steps=3000, log_every=20, eval_every=200, checkpoint_every=100)
  ema_decay: float = 0.995
  matmul_precision: str | None = "bfloat16"
  teacher: str = ""
  kl_weight: float = 0.8
  data: str = "runs/wordnet"


def get_config(arg: str = "target") -> TextRun:
  """Config of a run: ``target``, or ``draft`` (two narrow layers)."""
  if arg == "draft":
    model = dataclasses.replace(TextRun().model, dim=128, num_layers=2, num_heads=2)
    return TextRun(model=model, loop=dataclasses.replace(TextRun().loop, num_steps=1500))
  if arg not in ("", "target"):
    raise ValueError(f"Must have config 'target' or 'draft', we instead got {arg!r}")
  return TextRun()


def make_batch_fn(run: TextRun, tokens: np.ndarray, starts: np.ndarray, seed: int):
  """Batches ``tokens [B, num_tokens + 1]`` int32 as a pure function of the step: lines in a new order every epoch."""
  row = run.num_tokens
  per_epoch = (len(tokens) - 1) // row
  if per_epoch < 1:
    raise ValueError(f"Must have more than {row} tokens of text, we instead got {len(tokens)}")

  @functools.lru_cache(maxsize=2)
  def epoch_tokens(epoch: int) -> np.ndarray:
    order = np.random.default_rng((seed, epoch)).permutation(len(starts) - 1)
    return np.concatenate([tokens[starts[line] : starts[line + 1]] for line in order])

  def batch_fn(step: int) -> dict[str, np.ndarray]:
    at = range(step * run.batch_size, (step + 1) * run.batch_size)
    rows = [epoch_tokens(i // per_epoch)[i % per_epoch * row : (i % per_epoch + 1) * row + 1] for i in at]
    return {"tokens": np.stack(rows).astype(np.int32)}

  return batch_fn


def make_loss_fn(run: TextRun, teacher: Network | None):
  """Cross entropy of the text; with a teacher also its divergence. Metrics: ``text`` in nats, ``acceptance``."""
  fns = gpt_neo_fns(run.model)

  def loss_fn(params, extra, batch, key):
    del key
    inputs, targets = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
    logits = fns.apply(params, inputs)[0].logits
    text = jnp.mean(token_losses(logits, targets))
    if teacher is None:
      return text, ({"text": text}, extra)
    distribution = jax.lax.stop_gradient(teacher.fns.apply(extra, inputs)[0].logits)
    acceptance = jnp.mean(jnp.sum(jnp.minimum(jax.nn.softmax(distribution), jax.nn.softmax(logits)), axis=-1))
    loss = (1 - run.kl_weight) * text + run.kl_weight * distillation_kl(distribution, logits)
    return loss, ({"text": text, "acceptance": acceptance}, extra)

  return loss_fn


def train(run: TextRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains in ``run_dir`` and (with ``export_to``) writes a checkpoint; returns the final state."""
  with np.load(Path(run.data) / TOKENS_FILE) as archive:
    data = dict(archive)
  teacher = checkpoints.load(run.teacher) if run.teacher else None
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  params = gpt_neo_fns(run.model).init(jax.random.key(run.seed))
  state = train_state.create(params, optimizer, extra=teacher.params if teacher else ())
  loss_fn = make_loss_fn(run, teacher)
  step = make_train_step(loss_fn, optimizer, ema_decay=run.ema_decay, seed=run.seed, matmul_precision=run.matmul_precision)
  compute = jax.jit(lambda params, extra, batch: loss_fn(params, extra, batch, None)[1][0])
  held_out = make_batch_fn(run, data["held_out"], data["held_out_starts"], run.seed + 1)

  def eval_fn(state) -> dict[str, float]:
    parts = [compute(state.ema, state.extra, held_out(i)) for i in range(8)]
    return {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}

  state = fit(
    run.loop, state, step, make_batch_fn(run, data["train"], data["train_starts"], run.seed), run_dir=run_dir,
    eval_fn=eval_fn, report_fn=Progress("text", run.batch_size), resume=resume,
  )  # fmt: skip
  if export_to is not None:
    name = name_of(run).removeprefix("text-")
    export(run, state, Path(export_to), command_of(f"language_model --config {name}", run, get_config(name)))
  return state


def name_of(run: TextRun) -> str:
  """Folder of a run: a draft has a teacher or fewer layers than the target."""
  is_draft = bool(run.teacher) or run.model.num_layers < TextRun().model.num_layers
  return "text-draft" if is_draft else "text-target"


def export(run: TextRun, state, path: Path, command: str) -> None:
  """Writes the averaged weights with vocabulary and notice."""
  meta = {
    "licence": "Apache-2.0; trained on WordNet 3.1, whose notice is in LICENSE",
    "source": "glosses and examples of WordNet 3.1, Princeton University",
    "command": command,
    "run": dataclasses.asdict(run),
    "steps": int(state.step),
  }
  checkpoints.save(path, run.model, state.ema, meta=meta, dtype=jnp.bfloat16)
  for name in (TOKENIZER_FILE, "LICENSE"):
    shutil.copyfile(Path(run.data) / name, path / name)


if __name__ == "__main__":
  main(__doc__, get_config, train, config="target", name_of=name_of)

"""Trains the text-to-image target: a prompt to the 256 tokens of a 64x64 image.

Command (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.train.generator --run-dir runs/target

Needs the token set (``python -m experiments.data.tokenize_emoji``). Text encoder and transformer are trained together; the
caption of a tenth of the images is replaced by the unconditional features, so that the model can be guided.
``--export`` writes the running mean of the weights into the bundle.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.train.command import Progress, epochs_of, main, meta_of
from experiments.train.image_code import image_code, principal_components
from experiments.train.tokenizer import image_grid
from jaxspec import checkpoints
from jaxspec.data import text_tokenizer
from jaxspec.data.emoji import SPLITS, STYLES, Emoji, EmojiSet, load_emoji
from jaxspec.data.prompts import make_prompt
from jaxspec.data.tokens import BACKGROUND_NAMES, TokenSet
from jaxspec.decoder import Decoder
from jaxspec.hosts.images import VOCABULARY_FILE
from jaxspec.models.conditions import Caption, Prefixed
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.models.text_encoder import TextEncoderConfig, text_encoder_fns
from jaxspec.models.tokenizer_fns import to_uint8
from jaxspec.network import Network
from jaxspec.sampling import SamplingConfig
from jaxspec.training import train_state
from jaxspec.training.loop import LoopConfig, fit
from jaxspec.training.losses import token_cross_entropy
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.overrides import differences
from jaxspec.training.step import make_train_step

SAMPLE_PROMPTS = (
  "red apple", "grinning face", "twemoji cat face on a blue background", "fluent red heart",
  "noto pizza", "airplane on a yellow background", "small green apple", "twemoji soccer ball",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class GeneratorRun:
  """Everything a run depends on."""

  seed: int = 0
  batch_size: int = 16
  text: TextEncoderConfig = TextEncoderConfig()
  model: LlamaGenConfig = LlamaGenConfig(
    model_type="t2i", num_layers=8, dim=256, num_heads=4, vocab_size=512, num_tokens=256, prefix_len=16,
    caption_dim=192, multiple_of=64, prefix_keys=True,
  )  # fmt: skip
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=3e-3, muon_learning_rate=0.02, warmup_steps=50, weight_decay=0.05
  )
  loop: LoopConfig = LoopConfig(num_steps=1600, log_every=10, eval_every=400, checkpoint_every=100)
  caption_drop: float = 0.1
  plain_fraction: float = 0.5  # of the training images, the unpainted variant
  # A short run cannot draw a thousand concepts: this share of the images comes from a few groups (or label words), which
  # it then sees often enough. The other concepts keep the rest.
  focus: tuple[str, ...] = ("Food & Drink", "heart")
  focus_fraction: float = 0.75
  image_weight: float = 1.0
  image_components: int = 128
  ema_decay: float = 0.995
  ema_start_fraction: float = 0.5
  compute_dtype: str | None = None
  matmul_precision: str | None = "bfloat16"
  tokens: str = "runs/tokens/emoji64.npz"
  bundle: str = "checkpoints/emoji64"
  text_from: str | None = None  # checkpoint folder the text encoder starts from (experiments.train.text_encoder)
  target_from: str | None = None  # checkpoint folder the transformer starts from


def get_config(arg: str = "") -> GeneratorRun:
  """Config of a run: ``""`` for the weights trained on two CPU cores, ``"gpu"`` for a larger model on an accelerator."""
  if arg == "gpu":
    model = dataclasses.replace(GeneratorRun().model, num_layers=12, dim=448, num_heads=7)
    loop = LoopConfig(num_steps=40000, log_every=50, eval_every=2000, checkpoint_every=1000)
    return GeneratorRun(batch_size=64, model=model, loop=loop, compute_dtype="bfloat16", ema_decay=0.999)
  if arg:
    raise ValueError(f"Must have config '' or 'gpu', we instead got {arg!r}")
  return GeneratorRun()


def make_batch_fn(run: GeneratorRun, emoji: EmojiSet, tokens: TokenSet, vocabulary, split: int = 0, seed: int | None = None):
  """Batches as a pure function of the step: tokens ``[B, N]``, prompt ids and mask ``[B, P]``, drop ``[B]``."""
  seed = run.seed if seed is None else seed
  rows_of = {}
  for plain in (True, False):
    rows = np.flatnonzero((tokens.split == split) & ((tokens.variant == 0) == plain))
    order = np.argsort(tokens.image[rows], kind="stable")
    rows_of[plain] = rows[order]
  images = np.unique(tokens.image[tokens.split == split])
  painted = {p: rows_of[False][tokens.image[rows_of[False]] == p] for p in images}
  plain = dict(zip(tokens.image[rows_of[True]], rows_of[True]))

  focused = images[[in_focus(emoji.emoji[emoji.concept[image]], run.focus) for image in images]]
  focus_fraction = run.focus_fraction if len(focused) else 0.0
  in_turn = epochs_of(images, run.batch_size, (seed, 0))

  def batch_fn(step: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng((seed, 1, step))
    rows, texts = [], []
    for image in in_turn(step):
      if generator.random() < focus_fraction:
        image = generator.choice(focused)
      use_plain = generator.random() < run.plain_fraction
      row = plain[image] if use_plain else generator.choice(painted[image])
      rows.append(row)
      texts.append(_prompt(generator, emoji, tokens, row))
    ids, mask, _ = text_tokenizer.encode(vocabulary, texts, max_tokens=run.text.max_tokens)
    drop = generator.random(run.batch_size) < run.caption_drop
    return {"tokens": tokens.tokens[rows].astype(np.int32), "ids": ids, "mask": mask, "drop": drop}

  return batch_fn


def in_focus(emoji: Emoji, focus: tuple[str, ...]) -> bool:
  """Whether an image belongs to one of the groups, or has one of the words in its label."""
  return emoji.group in focus or any(word in focus for word in emoji.label.split())


def _prompt(generator: np.random.Generator, emoji: EmojiSet, tokens: TokenSet, row: int) -> str:
  image = tokens.image[row]
  return make_prompt(
    generator,
    emoji.emoji[emoji.concept[image]],
    STYLES[emoji.style[image]],
    BACKGROUND_NAMES[tokens.background[row]],
    bool(tokens.small[row]),
  )


def captions_of(run, params, batch) -> Caption:
  """The captions of a batch, some of them dropped."""
  caption = text_encoder_fns(run.text).apply(params["text"], batch["ids"], batch["mask"])
  table = jax.lax.stop_gradient(params["target"]["cls_embedding"]["uncond_embedding"])
  features = jnp.where(batch["drop"][:, None, None], table[None].astype(caption.features.dtype), caption.features)
  # A dropped caption keeps its mask, as in the official training.
  return Caption(features, caption.mask)


def forward(run: GeneratorRun, params, batch):
  """Teacher-forced output of a batch at the N positions that predict its tokens."""
  inputs = Prefixed(captions_of(run, params, batch), batch["tokens"][:, :-1])
  output, _ = llamagen_fns(run.model).apply(params["target"], inputs)
  return jax.tree.map(lambda x: x[:, run.model.prefix_len - 1 :], output)


def loss_fn(run: GeneratorRun, params, extra, batch, key, *, code_fn=None):
  """Mean cross entropy of the image tokens, in nats (LlamaGen, arXiv 2406.06525), and the error of the image code.

  A caption is worth some ten nats of the hundreds of an image, so cross entropy alone hears it late. Every position
  therefore also predicts the code of the whole image; at the first positions only the caption can tell.
  """
  del key
  output = forward(run, params, batch)
  loss = token_cross_entropy(output.logits, batch["tokens"])
  if code_fn is None:
    return loss, ({}, extra)
  predicted = output.features @ params["image_output"]["weight"].T.astype(output.features.dtype)  # [B, N, num]
  gap = predicted.astype(jnp.float32) - code_fn(batch["tokens"])[:, None]
  error = jnp.mean(jnp.sum(jnp.square(gap), axis=-1), where=~batch["drop"][:, None])
  return loss + run.image_weight * error, ({"cross_entropy": loss, "image_error": error}, extra)


def init_params(run: GeneratorRun):
  """Fresh weights (the head starts at zero, as officially), or those of earlier checkpoints."""
  text_key, target_key = jax.random.split(jax.random.key(run.seed))
  return {
    "text": _start(run.text_from, lambda: text_encoder_fns(run.text).init(text_key)),
    "image_output": {"weight": jnp.zeros((run.image_components, run.model.dim))},
    "target": _start(run.target_from, lambda: llamagen_fns(run.model).init(target_key)),
  }


def _start(folder: str | None, init_fn):
  """Parameters of a checkpoint of equal shapes, or fresh ones without a checkpoint."""
  if folder is None:
    return init_fn()
  params = checkpoints.load(folder).params
  chex.assert_trees_all_equal_shapes(params, jax.eval_shape(init_fn))
  return params


def make_eval_fn(run: GeneratorRun, emoji: EmojiSet, tokens: TokenSet, vocabulary, num_batches: int = 6):
  """Cross entropy on fixed batches of each split, of the running mean of the weights."""
  compute = jax.jit(lambda params, batch: loss_fn(run, params, (), batch, None)[0])
  batches = {}
  for split, name in enumerate(SPLITS):
    batch_fn = make_batch_fn(run, emoji, tokens, vocabulary, split=split, seed=run.seed + 1)
    batches[name] = [batch_fn(step) | {"drop": np.zeros(run.batch_size, bool)} for step in range(num_batches)]

  def eval_fn(state) -> dict[str, float]:
    return {
      f"loss_{name}": float(np.mean([float(compute(state.ema, batch)) for batch in group]))
      for name, group in batches.items()
    }

  return eval_fn


def make_sample_fn(run: GeneratorRun, vocabulary, cfg_scale: float = 3.0):
  """Images of fixed prompts by plain decoding, as a PNG."""
  tokenizer, fns = checkpoints.load(Path(run.bundle) / "tokenizer"), llamagen_fns(run.model)
  ids, mask, _ = text_tokenizer.encode(vocabulary, list(SAMPLE_PROMPTS), max_tokens=run.text.max_tokens)
  decode = jax.jit(tokenizer.fns.decode)

  def sample_fn(state, path: Path) -> None:
    caption = text_encoder_fns(run.text).apply(state.ema["text"], jnp.asarray(ids), jnp.asarray(mask))
    decoder = Decoder(Network(fns, state.ema["target"], run.model), sampling=SamplingConfig(cfg_scale=cfg_scale))
    drawn = [decoder(caption, key=jax.random.key(seed), max_len=run.model.num_tokens) for seed in range(2)]
    rows = [np.asarray(to_uint8(decode(tokenizer.params, out.tokens))) for out in drawn]
    image_grid(rows[0], rows[1], columns=len(SAMPLE_PROMPTS)).save(path)

  return sample_fn


def export(run: GeneratorRun, state, figures: dict[str, float], bundle: Path, started: float) -> None:
  """Writes text encoder and target into a bundle, in bfloat16."""
  licence = (
    "Apache-2.0; trained on Noto Emoji, Twemoji (CC-BY-4.0) and Fluent Emoji images and emojibase labels, "
    "see jaxspec/data/emoji/ATTRIBUTION.md"
  )
  more = {"stages": _stages(run, int(state.step)), "figures": figures}
  meta = meta_of("generator", run, GeneratorRun(), state, licence=licence, started=started, **more)
  checkpoints.save(bundle / "text", run.text, state.ema["text"], meta=meta, dtype=jnp.bfloat16)
  checkpoints.save(bundle / "target", run.model, state.ema["target"], meta=meta, dtype=jnp.bfloat16)


def _stages(run: GeneratorRun, steps: int) -> list[str]:
  """What the checkpoint this run started from says of its own training, and this run."""
  earlier = checkpoints.load(run.target_from).meta.get("stages", []) if run.target_from else []
  return [*earlier, f"{steps} steps with {', '.join(differences(GeneratorRun(), run))}"]


def train(run: GeneratorRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates and (with ``export_to``) writes the bundle parts; returns the final state."""
  emoji, tokens = load_emoji(), TokenSet.load(run.tokens)
  vocabulary = text_tokenizer.load_text_tokenizer(Path(run.bundle) / VOCABULARY_FILE)
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  state = train_state.create(init_params(run), optimizer)
  tokenizer = checkpoints.load(Path(run.bundle) / "tokenizer")
  codebook = tokenizer.fns.codebook(tokenizer.params)
  basis = principal_components(codebook, tokens.tokens[tokens.split == 0], run.image_components)
  step = make_train_step(
    functools.partial(loss_fn, run, code_fn=functools.partial(image_code, codebook, basis)),
    optimizer,
    ema_decay=run.ema_decay,
    ema_start=int(run.ema_start_fraction * run.loop.num_steps),
    seed=run.seed,
    compute_dtype=run.compute_dtype,
    matmul_precision=run.matmul_precision,
  )
  eval_fn = make_eval_fn(run, emoji, tokens, vocabulary)
  started = time.perf_counter()
  state = fit(
    run.loop, state, step, make_batch_fn(run, emoji, tokens, vocabulary), run_dir=run_dir, eval_fn=eval_fn,
    sample_fn=make_sample_fn(run, vocabulary), report_fn=Progress("generator", run.batch_size), resume=resume,
  )  # fmt: skip
  if export_to is not None:
    export(run, state, eval_fn(state), Path(export_to), started)
  return state


if __name__ == "__main__":
  main(__doc__, get_config, train, name_of=lambda run: "target")

"""Trains the text-to-image target of scenes: a caption to the 144 tokens of a 96 x 96 image.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.train.scene_target --estimate
    python -m experiments.train.scene_target --run-dir runs/scenes-kept --export runs/scenes-kept/bundle
    python -m experiments.train.scene_target --config whole --run-dir runs/scenes-whole --set first_image=96000 \\
      --set start_from=runs/scenes-kept/bundle --export checkpoints/scenes
    python -m experiments.train.scene_target --config textures --run-dir runs/textures --export runs/textures/bundle

Text encoder and transformer are trained together on scenes that are painted as they are needed: no two steps see the same
image. The caption of a tenth of the images is replaced by the unconditional features, so that the model can be guided.
The first run looks at a part of each image (``kept``, `experiments.train.kept_inputs`): it costs less than half, and its
tokens are those that are hard to predict. Where objects begin, and how many, the second learns from whole images.
Every evaluation draws images of unseen captions by plain decoding and counts those that are right, by task
(`jaxspec.evaluation.scenes.score`). ``--export`` writes a bundle: vocabulary, text encoder, target, and a copy of the
tokenizer where there is none.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from experiments.data.scene_tokens import scene_encoder
from experiments.train.carried_codes import carry, counts_of_codes
from experiments.train.command import Progress, main, meta_of, predicted_hours
from experiments.train.kept_inputs import kept_inputs
from experiments.train.synonyms import colours_of_codes, synonym_nats
from experiments.train.tokenizer import image_grid
from jaxspec.core.network import Network
from jaxspec.core.overrides import differences
from jaxspec.core.types import ModelOutput
from jaxspec.evaluation import scenes
from jaxspec.families.token_images import VOCABULARY_FILE
from jaxspec.io import checkpoints
from jaxspec.io.bundle import write_bundle
from jaxspec.io.text import text_tokenizer
from jaxspec.io.text.prompt_spelling import normalize_prompt
from jaxspec.models.conditions import Caption, Prefixed
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.models.text_encoders.text_encoder import TextEncoderConfig, text_encoder_fns
from jaxspec.models.tokenizers.tokenizer_fns import to_uint8
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig
from jaxspec.training import train_state
from jaxspec.training.common_losses import token_cross_entropy
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.train_loop import LoopConfig, fit
from jaxspec.training.train_step import make_train_step

LICENCE = (
  "Apache-2.0; trained on scenes of Noto Emoji, Twemoji (CC-BY-4.0) and Fluent Emoji images, see "
  "jaxspec/evaluation/scenes/sprites/ATTRIBUTION.md"
)


@dataclasses.dataclass(frozen=True)
class SceneRun:
  """Everything a run depends on.

  Attributes:
    eval_images: captions of each split that every evaluation draws.
    cfg_scale: guidance of these images, and the bundle's default.
    top_p: likewise; it removes mostly debris (figures in `checkpoints/scenes/README.md`).
    kept: tokens of an image per step; 0 for all.
    synonyms: weight of the choice among the background tokens of one colour, which is noise for all but the texture; below 1
      it disturbs the rest less. The distribution of smallest loss is the same for every weight above 0.
    first_image: number of the first scene of a run; runs from earlier weights continue after their last scene.
    materials: of the backgrounds.
  """

  seed: int = 0
  batch_size: int = 48
  text: TextEncoderConfig = TextEncoderConfig(vocab_size=256, max_tokens=16)
  model: LlamaGenConfig = LlamaGenConfig(
    model_type="t2i", num_layers=8, dim=256, num_heads=4, vocab_size=1024, num_tokens=144, prefix_len=16,
    caption_dim=192, multiple_of=64, prefix_keys=True,
  )  # fmt: skip
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, muon_learning_rate=0.01, warmup_steps=50, weight_decay=0.1, final_fraction=0.1
  )
  loop: LoopConfig = LoopConfig(num_steps=2000, log_every=10, eval_every=500, checkpoint_every=100)
  caption_drop: float = 0.1
  kept: int = 48
  synonyms: float = 1.0
  ema_decay: float = 0.995
  ema_start_fraction: float = 0.0
  compute_dtype: str | None = None
  matmul_precision: str | None = "bfloat16"
  eval_images: int = 48
  cfg_scale: float = 1.5
  top_p: float = 0.95
  first_image: int = 0
  materials: tuple[str, ...] = scenes.FLAT_WORLD
  tokenizer: str = "checkpoints/scenes/tokenizer"
  start_from: str | None = None  # a bundle whose text encoder and target the run starts from, with their codes carried over

  def __post_init__(self):
    if not 0 <= self.kept < self.model.num_tokens:
      raise ValueError(f"Must have kept of 0 to {self.model.num_tokens - 1}, we instead got {self.kept}")
    for name, least in (("batch_size", 1), ("eval_images", 1), ("first_image", 0), ("cfg_scale", 0)):
      if getattr(self, name) < least:
        raise ValueError(f"Must have {name} from {least}, we instead got {getattr(self, name)}")
    if not (0 <= self.caption_drop < 1 and 0 < self.top_p <= 1):
      raise ValueError(
        f"Must have caption_drop from 0 to below 1 and top_p above 0 and at most 1, we instead got {self.caption_drop} and "
        f"{self.top_p}"
      )
    if unknown := set(self.materials) - {*scenes.TEXTURED_WORLD} or not self.materials:
      raise ValueError(
        f"Must have materials in {', '.join(scenes.TEXTURED_WORLD)}, we instead got {unknown or self.materials}"
      )


def _sampling(run: SceneRun) -> dict[str, float]:
  return {"cfg_scale": run.cfg_scale, "top_p": run.top_p}


def get_config(arg: str = "") -> SceneRun:
  """Config of a run: ``""`` for two CPU cores, ``"whole"`` to end it on whole images from ``start_from``, ``"textures"``
  for the textured world, ``"gpu"`` for a larger model on an accelerator.
  """
  run = SceneRun()
  if arg == "whole":
    optimizer = dataclasses.replace(run.optimizer, learning_rate=5e-4, muon_learning_rate=2.5e-3, final_fraction=0.0)
    loop = dataclasses.replace(run.loop, num_steps=600, eval_every=200)
    start = "runs/scenes-kept/bundle"
    return dataclasses.replace(run, kept=0, batch_size=32, optimizer=optimizer, loop=loop, eval_images=96, start_from=start)
  if arg == "textures":
    optimizer = dataclasses.replace(run.optimizer, learning_rate=1e-3, muon_learning_rate=5e-3, final_fraction=0.05)
    return dataclasses.replace(
      run, kept=0, batch_size=32, optimizer=optimizer, materials=scenes.TEXTURED_WORLD, start_from="checkpoints/scenes",
      model=dataclasses.replace(run.model, vocab_size=8192), tokenizer="runs/textures-tokenizer",
      loop=LoopConfig(num_steps=16000, log_every=20, eval_every=1000, checkpoint_every=100),
    )  # fmt: skip
  if arg == "gpu":
    model = dataclasses.replace(run.model, num_layers=12, dim=448, num_heads=7)
    loop = LoopConfig(num_steps=40000, log_every=50, eval_every=2000, checkpoint_every=1000)
    return SceneRun(batch_size=64, kept=0, model=model, loop=loop, compute_dtype="bfloat16", ema_decay=0.999)
  if arg:
    raise ValueError(f"Must have config '', 'whole', 'textures' or 'gpu', we instead got {arg!r}")
  return run


def learn_vocabulary(run: SceneRun, num_captions: int = 20_000) -> Tokenizer:
  """The vocabulary of training captions."""
  drawn = (scenes.draw_scene(run.seed, number, materials=run.materials) for number in range(num_captions))
  captions = (normalize_prompt(caption) for caption, _ in drawn)
  return text_tokenizer.learn_text_tokenizer(captions, run.text.vocab_size)


def make_batch_fn(run: SceneRun, vocabulary: Tokenizer):
  """Batches as a pure function of the step: ``kept [B, K]`` of the 144 tokens, ``inputs [B, K]`` there, ``targets
  [B, K + 1]`` (the first token, and the one after each input), prompt ids and mask ``[B, P]``, drop ``[B]``.
  """
  tokens_of, last = scene_encoder(checkpoints.load(run.tokenizer)), run.model.num_tokens - 1

  def batch_fn(step: int) -> dict[str, np.ndarray]:
    first = run.first_image + step * run.batch_size
    numbers = range(first, first + run.batch_size)
    drawn = [scenes.draw_scene(run.seed, number, materials=run.materials) for number in numbers]
    ids, mask, _ = text_tokenizer.encode(vocabulary, [caption for caption, _ in drawn], max_tokens=run.text.max_tokens)
    drop = np.random.default_rng((run.seed, 2, step)).random(run.batch_size) < run.caption_drop
    generator = np.random.default_rng((run.seed, 3, step))
    tokens = tokens_of([scene for _, scene in drawn], np.random.default_rng((run.seed, 4, step)))
    kept = np.stack([kept_inputs(scene, run.kept or last, generator) for _, scene in drawn])
    inputs, after = (np.take_along_axis(tokens, places, axis=1) for places in (kept, kept + 1))
    targets = np.concatenate([tokens[:, :1], after], axis=1)
    return {"kept": kept, "inputs": inputs, "targets": targets, "ids": ids, "mask": mask, "drop": drop}

  return batch_fn


def captions_of(run: SceneRun, params, batch) -> Caption:
  """The captions of a batch, some of them dropped."""
  caption = text_encoder_fns(run.text).apply(params["text"], batch["ids"], batch["mask"])
  table = jax.lax.stop_gradient(params["target"]["cls_embedding"]["uncond_embedding"])
  features = jnp.where(batch["drop"][:, None, None], table[None].astype(caption.features.dtype), caption.features)
  # A dropped caption keeps its mask, as in the official training.
  return Caption(features, caption.mask)


def forward(run: SceneRun, params, batch) -> ModelOutput:
  """Output at the positions that predict the targets of a batch, leaves ``[B, K + 1, ...]``."""
  rows, num = batch["kept"].shape
  prefix = run.model.prefix_len
  before = jnp.broadcast_to(jnp.arange(prefix)[None], (rows, prefix))
  causal = jnp.tril(jnp.ones((prefix + num, prefix + num), bool))
  output, _ = llamagen_fns(run.model).apply(
    params["target"], Prefixed(captions_of(run, params, batch), batch["inputs"]),
    positions=jnp.concatenate([before, batch["kept"] + prefix], axis=1), slot=jnp.zeros((rows,), jnp.int32),
    mask=jnp.broadcast_to(causal[None], (rows, *causal.shape)),
  )  # fmt: skip
  return jax.tree.map(lambda leaf: leaf[:, prefix - 1 :], output)


def loss_fn(run: SceneRun, colours: np.ndarray | None, params, extra, batch, key):
  """Cross entropy of the predicted tokens in nats, by the tokens of an image.

  Args:
    colours: as of `colours_of_codes`, for a weight of synonyms other than 1.
  """
  del key
  logits, targets = forward(run, params, batch).logits, batch["targets"]
  nats = token_cross_entropy(logits, targets) * targets.shape[1]
  loss, metrics = nats, {"nats_per_image": nats}
  if colours is not None:
    among = synonym_nats(logits, targets, colours) * targets.shape[1]
    loss, metrics = nats - (1.0 - run.synonyms) * among, metrics | {"nats_of_synonyms": among}
  return loss / run.model.num_tokens, (metrics, extra)


def init_params(run: SceneRun, vocabulary: Tokenizer):
  """Fresh weights, or those of an earlier bundle; for other codes than its own, they are carried over."""
  if run.start_from is None:
    text_key, target_key = jax.random.split(jax.random.key(run.seed))
    return {"text": text_encoder_fns(run.text).init(text_key), "target": llamagen_fns(run.model).init(target_key)}
  bundle = Path(run.start_from)
  loaded = {name: checkpoints.load(bundle / name) for name in ("text", "target")}
  params = {name: one.params for name, one in loaded.items()}
  model = loaded["target"].config
  for name, theirs, ours in (
    ("text", loaded["text"].config, run.text),
    ("model", dataclasses.replace(model, vocab_size=run.model.vocab_size), run.model),
  ):
    if theirs != ours:
      changed = ", ".join(differences(theirs, ours))
      raise ValueError(
        f"Must have the {name} of {run.start_from}, whose weights the run starts from; it differs in {changed}"
      )
  if model.vocab_size == run.model.vocab_size:
    return params
  old = dataclasses.replace(run, model=model, tokenizer=str(bundle / "tokenizer"), materials=scenes.FLAT_WORLD, kept=0)
  features = jax.jit(functools.partial(forward, old))(params, make_batch_fn(old, vocabulary)(0)).features
  tokenizers = checkpoints.load(bundle / "tokenizer"), checkpoints.load(run.tokenizer)
  counts = counts_of_codes(*tokenizers, run.materials, num_images=5000)
  return params | {"target": carry(params["target"], counts, np.asarray(features).reshape(-1, model.dim))}


class Drawn:
  """Draws unseen captions by plain decoding, and scores the images.

  Args:
    vocabulary: of the captions.
    splits: which captions; ``validation`` has combinations of training, ``held_out`` has others.
  """

  def __init__(self, run: SceneRun, vocabulary: Tokenizer, splits: tuple[str, ...] = ("validation", "held_out")):
    self._run, self._tokenizer = run, checkpoints.load(run.tokenizer)
    numbers = range(run.eval_images)
    drawn = [scenes.draw_scene(run.seed + 1, number, split, run.materials) for split in splits for number in numbers]
    self.captions = [caption for caption, _ in drawn]
    self._ids, self._mask, _ = text_tokenizer.encode(vocabulary, self.captions, max_tokens=run.text.max_tokens)
    self._encode = jax.jit(text_encoder_fns(run.text).apply)
    self._decode = jax.jit(self._tokenizer.fns.decode)

  def images(self, params, batch: int = 48) -> np.ndarray:
    """``[M, 96, 96, 3]`` uint8."""
    run, images = self._run, []
    network = Network(llamagen_fns(run.model), params["target"], run.model)
    decoder = Decoder(network, sampling=SamplingConfig(**_sampling(run)))
    for start in range(0, len(self.captions), batch):
      rows = np.arange(start, start + batch) % len(self.captions)  # one program for all
      caption = self._encode(params["text"], jnp.asarray(self._ids[rows]), jnp.asarray(self._mask[rows]))
      out = decoder(caption, key=jax.random.key(start), max_len=run.model.num_tokens)
      images.append(np.asarray(to_uint8(self._decode(self._tokenizer.params, out.tokens))))
    return np.concatenate(images)[: len(self.captions)]

  def figures(self, params) -> dict[str, float]:
    """Shares of correct images, by task and by split, and the shares of single demands."""
    table = scenes.summarise(scenes.score_images(self.captions, self.images(params)))
    found = {f"right_{name}": row["right"].value for name, row in table.items()}
    return found | {f"all_{demand}": row.value for demand, row in table["all"].items()}


def export(run: SceneRun, state, vocabulary: Tokenizer, figures: dict[str, float], bundle: Path, started: float) -> None:
  """Writes a bundle, weights in bfloat16."""
  earlier = checkpoints.load(Path(run.start_from) / "target").meta.get("stages", []) if run.start_from else []
  stages = [*earlier, {"steps": int(state.step), "run": dataclasses.asdict(run), "figures": figures}]
  meta = meta_of("scene_target", run, SceneRun(), state, licence=LICENCE, started=started, stages=stages, figures=figures)
  bundle.mkdir(parents=True, exist_ok=True)
  text_tokenizer.save_text_tokenizer(vocabulary, bundle / VOCABULARY_FILE)
  checkpoints.save(bundle / "text", run.text, state.ema["text"], meta=meta, dtype=jnp.bfloat16)
  checkpoints.save(bundle / "target", run.model, state.ema["target"], meta=meta, dtype=jnp.bfloat16)
  if not (bundle / "tokenizer").is_dir():
    shutil.copytree(run.tokenizer, bundle / "tokenizer")
  parts = {"tokenizer": "tokenizer", "text": "text", "vocabulary": VOCABULARY_FILE}
  known = {"things": list(scenes.NOUNS), "words": sorted(scenes.vocabulary(run.materials))}
  write_bundle(bundle, target="target", parts=parts | known, method="ar", sampling=_sampling(run))


def _make_step(run: SceneRun, optimizer):
  weighted = run.synonyms != 1
  colours = colours_of_codes(checkpoints.load(run.tokenizer), run.materials, num_images=2000) if weighted else None
  return make_train_step(
    functools.partial(loss_fn, run, colours), optimizer, ema_decay=run.ema_decay,
    ema_start=int(run.ema_start_fraction * run.loop.num_steps), seed=run.seed, compute_dtype=run.compute_dtype,
    matmul_precision=run.matmul_precision,
  )  # fmt: skip


def _vocabulary(run: SceneRun) -> Tokenizer:
  if run.start_from is None:
    return learn_vocabulary(run)
  if not (Path(run.start_from) / VOCABULARY_FILE).is_file():
    raise ValueError(f"Must have a bundle with {VOCABULARY_FILE} in start_from, we instead got {run.start_from}")
  return text_tokenizer.load_text_tokenizer(Path(run.start_from) / VOCABULARY_FILE)


def estimate(run: SceneRun) -> float:
  """Hours of a run."""
  vocabulary, optimizer = _vocabulary(run), make_optimizer(run.optimizer, run.loop.num_steps)
  state = train_state.create(init_params(run, vocabulary), optimizer)
  return predicted_hours(_make_step(run, optimizer), state, make_batch_fn(run, vocabulary), run.loop.num_steps)


def train(run: SceneRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates and (with ``export_to``) writes the bundle parts; returns the final state."""
  vocabulary = _vocabulary(run)
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  state = train_state.create(init_params(run, vocabulary), optimizer)
  drawn = Drawn(run, vocabulary)

  def sample_fn(state, path: Path) -> None:
    images = drawn.images(state.ema)[:48]
    half = len(images) // 2
    image_grid(images[:half], images[half:], columns=12).save(path)

  started = time.perf_counter()
  state = fit(
    run.loop, state, _make_step(run, optimizer), make_batch_fn(run, vocabulary), run_dir=run_dir,
    eval_fn=lambda state: drawn.figures(state.ema), sample_fn=sample_fn,
    report_fn=Progress("scenes", run.batch_size), resume=resume,
  )  # fmt: skip
  if export_to is not None:
    export(run, state, vocabulary, drawn.figures(state.ema), Path(export_to), started)
  return state


if __name__ == "__main__":
  main(__doc__, get_config, train, name_of=lambda run: "scenes-target", estimate=estimate)

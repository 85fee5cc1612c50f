"""CIAR (arXiv 2603.25463) on scenes: its score against others at equal calls, accuracy of thresholds, effects of training.

Tables of one network take the shipped ``inter-2``; ``published`` also takes its interval features (``python -m
experiments.train.devices inter-2-features``). Tables over trainings take ``runs/devices``, which ``python -m
experiments.train.devices`` fills: one factor is varied at a time from two layers with one head, three seeds each. Rows with
a target rate get their threshold from the captions of the table, except in ``thresholds``, which takes those stored in the
checkpoint.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from experiments.configs.scenes import BUNDLE, EAGLE, EDGE, MANY, SEVERAL, against, lantern
from experiments.engine import rows as engine_rows
from experiments.engine.quality import Quality
from experiments.engine.race import CAPTIONS, Heat, Race
from experiments.engine.rows import CLOSED, OPEN, PAPER_PREFIX, PLAIN, Row, code, row
from experiments.engine.scene_images import Scenes
from experiments.train.devices import ABLATED, BASE, DEPTHS, HEADS, SEEDS, WEIGHTED, edge_name, features_name

NUM_TOKENS = 144
# The cloud accepts almost all drafts in windows of the bundle's length, so that no threshold gives 30 % calls.
WINDOW = 1
RATES, RATE = (0.2, 0.3, 0.4), 0.3
WINDOWS_RATE = 0.15  # for windows up to 8, with several committed tokens per exchange
SCORES = {
  "CIAR": "interval", "Entropy": "entropy", "Entropy-Lens": "entropy_lens", "max-prob": "max_prob", "Random": "random",
  "U-HLM": "temperature",
}  # fmt: skip
MERGED = "merged:0.22"  # a tenth of the codes have their nearest one within this distance
FURTHER = {
  "Entropy of merged codes": f"{MERGED}:entropy", "CIAR of merged codes": f"{MERGED}:interval",
  "CIAR, published bounds": "interval:paper",
}  # fmt: skip
# `methods.Ciar.published`; its prefix is that of all rows with a rate.
AS_PUBLISHED = dict(draft="inter-2-features", score="interval:paper", inject="both")
# Same edge network, to measure the effect of its radii.
FORMS = {
  "CIAR": "interval", "published bounds": "interval:paper", "radius 0.5 for all tokens": "interval:radius=0.5",
  "additive U": "interval:additive", "volume": "interval:volume",
}  # fmt: skip
CLOUD = dict(layout="cloud", draft=EDGE)
# Rivals that verify every draft; they have no threshold.
LANTERN = row("lantern", "LANTERN, delta 0.2, k 1,000", draft="draft-1", delta=0.2, num_neighbours=1000)
# Three trainings of a setting draw each caption: 768 images per setting.
TRAINED = SEVERAL | dict(layout="cloud", bundle="runs/devices", scorer=Scenes(256), first_search=64, timings=0)


def matched(label: str, rate: float, **given) -> Row:
  """A row with a target rate, with windows of one token by default."""
  return engine_rows.matched(label, rate, **({"gamma": WINDOW} | given))


def comparison(rate: float) -> Quality:
  """CIAR and its baselines at one rate of cloud calls."""
  return Quality(
    title=f"CIAR and its rivals on scenes at {100 * rate:g} % cloud calls",
    subject="CIAR",
    rows=(*(matched(name, rate, score=score) for name, score in SCORES.items()), code(rate, NUM_TOKENS), LANTERN, EAGLE),
    **MANY,
    **CLOUD,
    notes=(
      "Rows with a threshold take 6 % of the tokens from the cloud first; CoDe takes all of its share there. LANTERN and "
      "EAGLE-2 have no threshold: the cloud verifies every draft.",
      "Published order at LlamaGen's first stage (Frechet distance, calls): CIAR 24.2, 30 %; Entropy 24.6, 52 %; Random "
      "30.2, 36 %; max-prob 31.1, 36 %; CoDe 35.7, 30 %; LANTERN 25.5, 50 %; EAGLE-2 25.1, 87 %.",
    ),
  )


def further(rate: float) -> tuple[Row, ...]:
  """CIAR and scores that are compared with it, at one rate of cloud calls."""
  words = f"{100 * rate:g} %"
  subject = matched(f"CIAR, {words}", rate)
  rows = (matched(f"{name}, {words}", rate, score=score) for name, score in FURTHER.items())
  return (subject, *(dataclasses.replace(entry, against=subject.label) for entry in rows))


def published(words: str, rate: float, **given) -> tuple[Row, Row]:
  """CIAR of the shipped edge network, and as published, which is compared with it."""
  default, whole = matched(f"CIAR, {words}", rate, **given), matched(f"as published, {words}", rate, **AS_PUBLISHED, **given)
  return default, *against(default, whole)


def picks(words: str, make: Callable[..., Row]) -> tuple[Row, Row]:
  """An edge that samples, and a greedy one that is compared with it."""
  sampling, greedy = make(f"sampling edge, {words}"), make(f"greedy edge, {words}", pick="argmax")
  return sampling, dataclasses.replace(greedy, against=sampling.label)


def trained(words: str, drafts: tuple[str, ...], **given) -> tuple[Row, ...]:
  """The trainings of one setting, one per seed."""
  return tuple(
    matched(f"{words}, seed {seed}", RATE, draft=draft, setting=words, **given) for seed, draft in zip(SEEDS, drafts)
  )


def seeds(config: str = BASE, *, guided: bool = False) -> tuple[str, ...]:
  """Names of the networks of one config."""
  return tuple(edge_name(config, seed, guided=guided) for seed in SEEDS)


def over(configs: tuple[str, ...], words) -> tuple[Row, ...]:
  """The trainings of several configs, each labelled ``words`` of it."""
  return tuple(entry for config in configs for entry in trained(words(config), seeds(config)))


def layers(config: str) -> str:
  return f"{config} layer{'s' * (config != '1')}"


def loss(config: str) -> str:
  """An ablation or a weight of the loss."""
  name = config.partition("-")[2]
  return name.replace("_", " ") if name else "the whole loss"


WITH_FEATURES = tuple(features_name(seed) for seed in SEEDS)

TABLES = {
  **{f"comparison_{100 * rate:.0f}": comparison(rate) for rate in RATES},
  "merged": Quality(
    title="Scores of merged codes, and published bounds, on scenes",
    rows=tuple(entry for rate in RATES for entry in further(rate)),
    **(MANY | dict(timings=0)),
    **CLOUD,
    notes=(f"Codes within a distance of {MERGED.partition(':')[2]} count as one. No paper has scores of merged codes.",),
  ),
  "published": Quality(
    title="CIAR as published on scenes",
    rows=(
      *(entry for rate in RATES for entry in published(f"{100 * rate:g} %", rate)),
      *published(f"window 4, {100 * WINDOWS_RATE:g} %", WINDOWS_RATE, gamma=4),
    ),
    **(MANY | dict(timings=0, bundle="runs/devices")),
    **CLOUD,
    notes=(
      "As published: scaled bounds, interval features with every token of the edge, a prefix of 6 %. The edge network of "
      "the paper is guided; this one has learnt the guided cloud's distributions.",
    ),
  ),
  "greedy": Quality(
    title="A greedy edge on scenes, and the edge's likeliest tokens",
    rows=(
      *(row("ciar", f"every token verified, {verify}", tau=CLOSED, verify=verify) for verify in ("exact", "lantern")),
      *picks("alone", functools.partial(row, "ciar", tau=OPEN)),
      *picks(f"{100 * RATE:g} % calls", functools.partial(matched, rate=RATE)),
    ),
    **MANY,
    **CLOUD,
    notes=(
      "Published: about 70 % of the tokens that the cloud approves are the edge's likeliest; a greedy edge alone keeps "
      "the semantics and loses details.",
    ),
  ),
  "thresholds": Quality(
    title="Thresholds of CIAR on captions that they were not found on",
    rows=(
      *(matched(f"calibrated, {100 * rate:g} %", rate) for rate in RATES),
      *(
        row("ciar", f"conformal, {100 * rate:g} %", cloud_rate=rate, gamma=WINDOW, target_prefix=PAPER_PREFIX)
        for rate in RATES
      ),
    ),
    stored_thresholds=True,
    **MANY,
    **CLOUD,
    notes=(
      "Held: within half a point of the wanted rate. Thresholds are those of the shipped checkpoint, which `jaxspec "
      "calibrate` found on 1,024 captions of another seed; those that move within an image begin there.",
    ),
  ),
  "tau": Quality(
    title="CIAR on scenes over its threshold",
    rows=tuple(matched(f"CIAR at {100 * rate:g} %", rate) for rate in (0.1, 0.2, 0.25, 0.3, 0.4, 0.5)),
    **SEVERAL,
    **CLOUD,
    notes=("Published: quality falls and speed grows with tau, 0.25 to 0.40 for a head of its own.",),
  ),
  "prefix": Quality(
    title="CIAR on scenes over the share that the cloud draws first",
    rows=tuple(matched(f"prefix {share:g}", RATE, target_prefix=share) for share in (0.0, PAPER_PREFIX, 0.12, 0.2)),
    **SEVERAL,
    **CLOUD,
    notes=("A prefix is paid for by a looser threshold. Published: a rate of 6 % is best.",),
  ),
  "code": Quality(
    title="CoDe on scenes over its share",
    rows=tuple(code(share, NUM_TOKENS) for share in (0.1, 0.15, 0.2, 0.25, 0.3, 0.6)),
    **SEVERAL,
    **CLOUD,
    notes=("Published: quality rises with the share and stays below CIAR's.",),
  ),
  "window": Quality(
    title="CIAR on scenes over its window",
    rows=tuple(
      dataclasses.replace(
        matched(f"window {window}", WINDOWS_RATE, gamma=window), against=f"window {window // 2}" if window > 1 else ""
      )
      for window in (1, 2, 4, 8)
    ),
    **SEVERAL,
    **CLOUD,
    notes=("At equal calls a longer window gives the cloud more tokens to judge.",),
  ),
  "discrete": Quality(
    title="Discrete sets on scenes",
    subject="CIAR",
    rows=(
      matched("CIAR", RATE),
      *(matched(f"k {k}, {form}", RATE, score=f"discrete:{k}:{form}") for k in (10, 50, 100) for form in ("upper", "gap")),
    ),
    **SEVERAL,
    **CLOUD,
    notes=("Published: distances of 24.8 to 26.0 for the discrete measure, 24.2 for the continuous one.",),
  ),
  "scores": Quality(
    title="What the score takes from the radii",
    rows=tuple(entry for name, score in FORMS.items() for entry in trained(name, seeds(), score=score)),
    **TRAINED,
    notes=("With one radius for all tokens the score reads the centre alone: learnt radii add what is lost then.",),
  ),
  "depth": Quality(
    title="CIAR on scenes over the depth of its edge network",
    rows=over(DEPTHS, layers),
    **TRAINED,
    notes=("Published: depth lowers the call rate (30.4 % to 25.7 %) and the distance a little.",),
  ),
  "heads": Quality(
    title="CIAR on scenes over its heads",
    rows=(
      *trained("1 head", seeds()),
      *(
        entry
        for config in HEADS[1:]
        for how in ("ensemble", "voting")
        for entry in trained(f"{config.partition('x')[2]} heads, {how}", seeds(config), combination=how)
      ),
    ),
    **TRAINED,
    notes=("Published: two or three heads are best.",),
  ),
  "loss": Quality(
    title="Ablations of the Inter-DRO loss on scenes",
    rows=over(ABLATED, loss),
    **TRAINED,
    notes=("Published: without the upper bound's loss, or without anchors, the distance doubles.",),
  ),
  "weights": Quality(
    title="Weights of the Inter-DRO loss on scenes",
    rows=over(WEIGHTED, loss),
    **TRAINED,
    notes=("The whole loss has variation 1, cross entropy 0.1, divergence 1, alpha 1; the paper gives no values.",),
  ),
  "inject": Quality(
    title="Inter-Enhance on and off",
    rows=(*trained("off", seeds()), *trained("on", WITH_FEATURES, inject="both")),
    **TRAINED,
    notes=("Trunk and heads of a network with features are those of the one without, so that only the cloud differs.",),
  ),
  "speed": Race(
    title="Speed and images of CIAR, LANTERN++ and EAGLE-2 on scenes",
    bundle=BUNDLE,
    layout="cloud",
    texts=CAPTIONS,
    scorer=Scenes(512),
    heats=tuple(
      Heat(
        batch=size,
        turns=16,
        rows=(
          PLAIN.but(label="plain decoding"),
          *(row("ciar", f"CIAR, window {window}", draft=EDGE, gamma=window, cloud_rate=RATE) for window in (1, 2, 4)),
          row("ciar", "CIAR alone", draft=EDGE, gamma=WINDOW, tau=OPEN),
          lantern("lambda 2", factor=2.0),
          EAGLE,
        ),
      )
      for size in (1, 8)
    ),
    against="CIAR, window 2",
    notes=("A conformal threshold steers every image towards 30 % cloud calls.",),
  ),
  "guidance": Quality(
    title="Edge networks with guidance and without",
    rows=(*trained("unguided", seeds()), *trained("guided", seeds(guided=True))),
    **TRAINED,
    notes=(
      "An unguided edge network has learnt the guided cloud's distributions, at half the cost; the paper's is guided.",
    ),
  ),
}

"""Continuous speculative decoding (arXiv 2411.11925) of the causal pair and the MAR pair that draw digits.

The causal pair of 64x64 images is four times as large. It is undertrained and serves only for speed and marginals. It is not
shipped: ``docs/mar.md``, section 5, has the commands that train it into `LARGER`. Another pair is selected with ``--set
bundle=runs/...``.

MAR's last Gaussian is narrow, so that the released test alone accepts many drafts, and a pass over a wide window is
expensive: its tables have fewer rows and images. The released *program* takes one pass per block instead of a pass per
prefix, and replaces single tokens; the published speed-ups are its.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from experiments.engine.classes import Acceptance, Marginals
from experiments.engine.hosts import Hosts
from experiments.engine.race import ContinuousRace, Heat
from experiments.engine.rows import Row, row

BUNDLES = {"causal": "digits32-causal", "mar": "digits32-mar"}
LARGER = "runs/classes64-causal"
TITLES = {"causal": "causal pair", "mar": "MAR pair"}
RULES: dict[str, dict[str, Any]] = {
  "published": {},
  "published, not aligned": {"align": False},
  "without S": {"sigma": "none"},
  "without S, not aligned": {"sigma": "none", "align": False},
  "released": {"sigma": "released", "inner_temperature": 42.0},
  "released, not aligned": {"sigma": "released", "inner_temperature": 42.0, "align": False},
  "program": {"sigma": "released", "inner_temperature": 42.0, "block": True},
  "exact": {"exact": True},
}
SAMPLING = ("cfg_scale", "temperature", "stop")
TARGET, TARGET_AGAIN = row("ar", "target"), row("ar", "target, seed 1", seed=1)
DRAFT = row("ar", "draft alone", alone=True)


def rule(name: str, label: str = "", **given: Any) -> Row:
  """Speculative decoding by a rule of `RULES`; sampling settings among ``given`` are passed on."""
  sampling = {setting: given.pop(setting) for setting in SAMPLING if setting in given}
  return row("cspd", label or name, sampling=sampling, **(RULES[name] | given))


def walk(family: str, title: str, rules: tuple[str, ...], num_images: int, **values: tuple) -> Acceptance:
  """A table of rules over all combinations of the values."""
  rows = []
  for combination in itertools.product(*values.values()):
    given = dict(zip(values, combination))
    # There is no exact rule for chains that end in a mean.
    rows += [rule(name, **given) for name in rules if name != "exact" or given.get("stop", 0) is not None]
  return Acceptance(
    title=f"Acceptance {title}, {TITLES[family]}", bundle=BUNDLES[family], rows=tuple(rows), num_images=num_images,
    batch=num_images, walked=tuple(values),
  )  # fmt: skip


BOTH = ("published", "exact")
UNALIGNED = ("published, not aligned", "published", "without S, not aligned", "without S")
OF_MAR = ("released", "program")
PREFIXES = (0.0, 0.05, 0.15)
OVER = {
  "gamma": "over the draft length", "alignment": "with and without trajectory alignment",
  "prefix": "over the share that the target draws first", "guidance": "over the guidance scale",
  "temperature": "over the temperature", "ends": "over the step at which chains stop",
}  # fmt: skip
WALKS = {
  "gamma_causal": walk("causal", OVER["gamma"], ("published", "without S", "exact"), 100, gamma=(4, 8, 16, 32)),
  "gamma_mar": walk("mar", OVER["gamma"], ("published", *OF_MAR), 10, gamma=(4, 8, 16, 32)),
  "alignment_causal": walk("causal", OVER["alignment"], UNALIGNED, 100, gamma=(4, 8)),
  "alignment_mar": walk(
    "mar", OVER["alignment"], ("published, not aligned", "published", "released, not aligned", "released"), 10, gamma=(4, 8)
  ),
  "prefix_causal": walk("causal", OVER["prefix"], BOTH, 100, gamma=(8,), target_prefix=PREFIXES),
  "prefix_mar": walk("mar", OVER["prefix"], OF_MAR, 10, gamma=(4, 8, 16), target_prefix=PREFIXES),
  "guidance_causal": walk("causal", OVER["guidance"], BOTH, 100, gamma=(4,), cfg_scale=(1.0, 2.0, 3.0)),
  "temperature_causal": walk(
    "causal", OVER["temperature"], BOTH, 100, gamma=(4,), cfg_scale=(1.0, 2.0), temperature=(0.9, 1.0)
  ),
  "ends_causal": walk("causal", OVER["ends"], ("published", "released", "exact"), 100, gamma=(4,), stop=(2, 3, 4)),
  "ends_mar": walk("mar", OVER["ends"], ("published", "released", "exact"), 10, gamma=(4,), stop=(None, 5)),
}


def digits(
  family: str, num_images: int, rows: tuple[Row, ...], notes: tuple[str, ...] = (), about: str = "", **sampling: Any
) -> Hosts:
  """Digits by every rule, compared with the target image by image; races measure the times (`heat`)."""
  rows = (TARGET, TARGET_AGAIN, DRAFT, *rows)
  return Hosts(
    title=f"Digits by continuous speculative decoding, {TITLES[family]}{about}", bundle=BUNDLES[family],
    num_images=num_images, rows=tuple(entry.but(sampling=sampling | dict(entry.sampling)) for entry in rows), turns=0,
    notes=notes,
  )  # fmt: skip


def iterations(*numbers: int) -> tuple[Row, ...]:
  """MAR's parallel decoding."""
  return tuple(row("parallel", f"target, {number} iterations", num_iter=number) for number in numbers)


def marginals(gamma: int) -> tuple[Row, ...]:
  """The target, the target with other seeds, the draft, and every rule, each with separate seeds."""
  rules = ("published", "without S", "released", "exact")
  plain = (TARGET, TARGET.but(label="target, other seeds", seed=1), DRAFT.but(seed=2))
  rows = (*plain, *(rule(name, f"{name} rule", gamma=gamma, seed=3 + number) for number, name in enumerate(rules)))
  return tuple(entry.but(sampling={"refine": False}) for entry in rows)  # a few tokens give no image


def heat(batch: int, turns: int, gammas: tuple[int, ...], rules: tuple[str, ...]) -> Heat:
  """Target, draft, and rules over the draft length."""
  rows = [rule(name, f"{name} {gamma}", gamma=gamma) for gamma in gammas for name in rules]
  return Heat(batch, turns, (TARGET, DRAFT.but(label="draft"), *rows))


# With 13 turns the smallest p of a row is 2^-12, 0.004 after the correction over 17 rows.
TURNS = 13
CAUSAL_HEATS = (
  heat(1, TURNS, (3, 7, 15, 31), BOTH), heat(8, TURNS, (3, 7, 15, 31), BOTH), heat(32, TURNS, (3, 7), BOTH),
)  # fmt: skip
FILLED = tuple(rule("program", f"program 8, prefix {share:g}", gamma=8, target_prefix=share) for share in PREFIXES[1:])
PUBLISHED = "Published, for MAR-H with a MAR-B draft on an A100: 1.11 to 1.44 at batch 1, 1.56 to 2.17 at batch 128."
MEAN = dict(sampling={"stop": None})
TABLES = WALKS | {
  "digits_causal": digits(
    "causal", 1000,
    tuple(rule(name, f"{name}, gamma {gamma}", gamma=gamma) for name in (*BOTH, "released") for gamma in (4, 8)),
  ),
  "digits_mar": digits(
    "mar", 60,
    (
      *iterations(32, 16, 8),
      *(rule(name, f"{name}, gamma 4", gamma=4) for name in ("exact", "released")),
      TARGET.but(label="target, ends in a mean (as published)", **MEAN),
      rule("released", "released, gamma 4, ends in a mean", gamma=4, stop=None),
    ),
    ("MAR as published ends in a mean. Published, FID of MAR-H alone and with a MAR-B draft: 1.55 and 1.60 (guided).",),
  ),
  "digits_guided_causal": digits(
    "causal", 1000, tuple(rule(name, f"{name}, gamma {gamma}", gamma=gamma) for name in BOTH for gamma in (4, 8)),
    about=", guidance 2", cfg_scale=2.0,
  ),
  "digits_plain_mar": digits(
    "mar", 120,
    (*iterations(17, 9), *(rule(name, f"{name}, gamma 4", gamma=4) for name in ("exact", *OF_MAR))),
    about=", no guidance", cfg_scale=1.0,
  ),
  "digits_blocks_mar": digits(
    "mar", 200,
    (*iterations(17, 9, 5, 3), *(rule("program", f"program, gamma {gamma}", gamma=gamma) for gamma in (4, 8, 16, 32))),
    ("Chains end in a mean, as published. The target in as many iterations as calls of a program costs less than it.",),
    about=", the released program", **MEAN["sampling"],
  ),
  "marginals_causal": Marginals(
    title="The distribution of one token, causal pair", bundle=LARGER, num_images=2048, batch=256, position=27,
    name="food-fruit", rows=marginals(4),
  ),
  "marginals_mar": Marginals(
    title="The distribution of one token, MAR pair", bundle=BUNDLES["mar"], num_images=1024, batch=128, rows=marginals(2)
  ),
  "speed_causal": ContinuousRace(
    title="Speed of continuous speculative decoding, causal pair", bundle=LARGER,
    heats=CAUSAL_HEATS, notes=(PUBLISHED,),
  ),
  "speed_digits": ContinuousRace(
    title="Speed of continuous speculative decoding, causal pair of digits", bundle=BUNDLES["causal"],
    heats=CAUSAL_HEATS,
  ),
  "speed_mar": ContinuousRace(
    title="Speed of continuous speculative decoding, MAR pair", bundle=BUNDLES["mar"],
    heats=(
      heat(1, TURNS, (4, 8), ("released", "exact")), heat(8, TURNS, (4,), ("released", "exact")),
    ),
    notes=(PUBLISHED,),
  ),
  "speed_blocks_mar": ContinuousRace(
    title="Speed of the released program of continuous speculative decoding, MAR pair", bundle=BUNDLES["mar"],
    heats=tuple(
      dataclasses.replace(found, rows=found.rows + FILLED)
      for found in (heat(batch, TURNS, (4, 8, 16, 32), ("program",)) for batch in (1, 8, 32))
    ),
    notes=(PUBLISHED,),
  ),
}  # fmt: skip

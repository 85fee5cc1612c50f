"""CIAR's Table 10 (arXiv 2603.25463) on small pairs that draw digits: scales of VAR and denoising steps of DiT.

python -m experiments.run hosts:table10_var hosts:table10_dit hosts:further_dit
python -m experiments.run hosts:table10_var --set num_images=40 --set num_calibration=20 --set turns=0    # a trial
"""

from __future__ import annotations

from experiments.engine.hosts import Hosts
from experiments.engine.rows import OPEN, Row, row

RATES = (0.2, 0.3, 0.4)
SCALES = 6  # of an image of the shipped pair
TARGET, DRAFT = row("ar", "target"), row("ar", "draft alone", alone=True)
AGAIN = row("ar", "target, seed 1", seed=1)


def matched(method: str, words: str = "CIAR", **given) -> tuple[Row, ...]:
  """CIAR at the rates of target calls."""
  return tuple(row(method, f"{words} at {100 * rate:g} % calls", rate=rate, **given) for rate in RATES)


TABLES = {
  "table10_var": Hosts(
    title="Scales of VAR: CoDe, exact speculation and CIAR",
    bundle="digits32-var",
    batch=1,  # rows of a batch make as many calls as the slowest
    rows=(
      TARGET,
      AGAIN,
      DRAFT,
      *(
        row("scale-ciar", f"CoDe, {first} of {SCALES} scales", tau=OPEN, target_prefix=first / SCALES)
        for first in (2, 3, 4, 5)
      ),
      *(row("scale-speculative", f"exact, map rule, gamma {gamma}", gamma=gamma) for gamma in (1, 2, 3)),
      row("scale-speculative", "exact, place rule, gamma 2", gamma=2, rule="place"),
      *matched("scale-ciar"),
    ),
    notes=(
      "Published, ImageNet 256: VAR-d24 IS 311, FID 2.11; VAR-d20 301, 2.61 at 1.65 times its speed; CoDe 297, 2.26 at 2.90 "
      "times; CIAR 290, 2.34 at 2.60 times. CoDe's factor is over VAR-d30.",
    ),
  ),
  "table10_dit": Hosts(
    title="Denoising steps of DiT: fewer steps, exact speculation and CIAR",
    bundle="digits32-dit",
    rows=(
      TARGET,
      AGAIN,
      DRAFT,
      *(row("ar", f"target, {steps} steps", sampling={"steps": steps}) for steps in (50, 25, 12)),
      *(row("step-ciar", f"the first {100 * share:g} % by the target", tau=OPEN, target_prefix=share)
        for share in (0.25, 0.5, 0.75)),
      *(row("step-speculative", f"exact, draft network, gamma {gamma}", draft="small", gamma=gamma) for gamma in (2, 4, 8)),
      *(row("step-speculative", f"exact, frozen draft, gamma {gamma}", draft="frozen", gamma=gamma) for gamma in (2, 4)),
      *matched("step-ciar"),
    ),
    notes=(
      "Published, ImageNet 256, DDIM of 50, 25, 20 and 12 steps: IS 241, 232, 221, 184; FID 2.27, 3.18, 3.81, 7.80; CIAR "
      "240, 2.32 at 4.90 times the speed of 50 steps. Rows here are of DDPM: steps of DDIM have no noise and no exact rule.",
    ),
  ),
  "further_dit": Hosts(
    title="Denoising steps of DiT: steps of DDIM, last steps by the target, and a weighted score",
    bundle="digits32-dit",
    rows=(
      TARGET,
      row("ar", "target, 20 steps", sampling={"steps": 20}),
      *(row("ar", f"target, {steps} steps of DDIM", sampling={"steps": steps, "ddim_eta": 0.0})
        for steps in (50, 25, 20, 12)),
      *(row("step-ciar", f"the last {100 * share:g} % by the target", tau=OPEN, target_suffix=share)
        for share in (0.25, 0.4, 0.5, 0.75)),
      *matched("step-ciar", "CIAR, weighted score,", score="weighted"),
    ),
    notes=("Published, ImageNet 256, DDIM of 50, 25, 20 and 12 steps: IS 241, 232, 221, 184; FID 2.27, 3.18, 3.81, 7.80.",),
  ),
}  # fmt: skip

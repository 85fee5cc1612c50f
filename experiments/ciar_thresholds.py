"""What threshold, prefix and window do (CIAR, arXiv 2603.25463, Figures 3 and 6, Table 4).

Commands (a quarter of an hour each on two idle cores; a matched row takes some five decodes of 64 pictures)::

    python -m experiments.ciar_thresholds --config tau --device inter-2
    python -m experiments.ciar_thresholds --config rho --device inter-2
    python -m experiments.ciar_thresholds --config code --device inter-2
    python -m experiments.ciar_thresholds --config window --set num_train=24 --set num_held_out=4

``tau``: CIAR at cloud-call rates from 20 % to 40 %, thresholds found for each (the paper's tau of 0.25 to 0.40 belong to its
own head). ``rho``: shares of tokens from the cloud, all at 30 % calls, so that a prefix is paid for by a looser threshold.
``code``: CoDe's share, at whatever that costs. `experiments.ciar_figures` draws these three. ``window``: tokens that are
verified in one exchange, for both shipped devices: a short window drafts and reads less, a long one asks less often.

Published: quality falls and speed grows with tau; a prefix rate of 6 % is best; CoDe's quality rises with its share and
stays behind CIAR's.
"""

from __future__ import annotations

from experiments.ciar_rows import RHO, GatedRun, Row
from experiments.ciar_table import main

RATES = (0.2, 0.25, 0.3, 0.4)
PREFIXES = (0.0, 0.06, 0.12, 0.2)
DEVICES, WINDOWS = ("inter-1", "inter-2"), (1, 2, 3)
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3)
RATE = 0.3


def get_config(arg: str = "tau") -> GatedRun:
  """``tau``, ``rho``, ``code`` or ``window``.

  Raises:
    ValueError: for anything else.
  """
  if arg in ("", "tau"):
    rows = tuple(Row.gated(f"CIAR at {100 * rate:g} %", rho=RHO, rate=rate) for rate in RATES)
    return GatedRun("ciar_tau", "CIAR over its threshold", entries=rows)
  if arg == "rho":
    rows = tuple(Row.gated(f"rho {rho:g}", rho=rho, rate=RATE) for rho in PREFIXES)
    return GatedRun("ciar_rho", f"CIAR over its prefix, at {100 * RATE:g} % cloud calls", entries=rows)
  if arg == "code":
    return GatedRun("ciar_code", "CoDe over its share", entries=tuple(Row.code(share) for share in SHARES))
  if arg == "window":
    rows = tuple(
      Row.gated(f"{device}, window {window}", device=device, rho=RHO, rate=RATE, gamma=window)
      for device in DEVICES
      for window in WINDOWS
    )
    return GatedRun("ciar_window", f"CIAR over its window, at {100 * RATE:g} % cloud calls", entries=rows)
  raise ValueError(f"Must have tau, rho, code or window, we instead got {arg!r}")


if __name__ == "__main__":
  main(get_config)

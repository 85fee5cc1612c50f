"""Confidence intervals, tests and sample sizes for comparisons of methods.

Prompts are the units. Several samples of one prompt are a *cluster*, because they resemble each other: every interval here
is over clusters. ``clusters`` is an ``[N]`` array with the prompt of each sample; None makes every sample a cluster of its
own. Clusters are assumed to be independent and identically distributed.

1. One figure: `share` (between 0 and 1), `mean`, `ratio` (of two sums), `bounded_ratio` (of two sums, between 0 and 1).
2. Two methods on the same prompts with the same keys: `paired_difference`, `paired_share_difference`, `time_ratio`.
   Two figures without a prompt in common: `independent_difference`.
3. A table of differences: `correct_table` has the p values of Holm and the smallest detectable difference of each
   comparison.
4. Planning: `required_clusters`, `detectable_share`, `required_share_count`. Claims of equality: `equivalence`,
   `required_equivalent_clusters`.

Distances of feature sets have their intervals in `jaxspec.evaluation.distances`. ``tests/evaluation`` simulates the coverage
of the intervals. Everything is numpy and scipy; random numbers come from ``seed``, so that figures are reproducible.
"""

from jaxspec.statistics.clusters import cluster_index
from jaxspec.statistics.differences import (
  Difference,
  TimeRatio,
  independent_difference,
  paired_difference,
  paired_share_difference,
  sign_flip_p_value,
  time_ratio,
)
from jaxspec.statistics.equivalence import Equivalence, equivalence
from jaxspec.statistics.figures import FEWEST_CLUSTERS, Interval, Share, bounded_ratio, mean, ratio, share, wilson
from jaxspec.statistics.power import (
  detectable_difference,
  detectable_share,
  required_clusters,
  required_equivalent_clusters,
  required_share_count,
)
from jaxspec.statistics.quantiles import t_quantile
from jaxspec.statistics.tables import Corrected, correct_table, holm

__all__ = [
  "FEWEST_CLUSTERS",
  "Corrected",
  "Difference",
  "Equivalence",
  "Interval",
  "Share",
  "TimeRatio",
  "bounded_ratio",
  "cluster_index",
  "correct_table",
  "detectable_difference",
  "detectable_share",
  "equivalence",
  "holm",
  "independent_difference",
  "mean",
  "paired_difference",
  "paired_share_difference",
  "ratio",
  "required_clusters",
  "required_equivalent_clusters",
  "required_share_count",
  "share",
  "sign_flip_p_value",
  "t_quantile",
  "time_ratio",
  "wilson",
]

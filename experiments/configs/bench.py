"""Single parts of the library: kernels, codings, hostile bytes."""

from __future__ import annotations

from experiments.bench.ciar_sizes import CiarSizes
from experiments.bench.codec import Codec
from experiments.bench.conversion import Conversion
from experiments.bench.fuzz_link import FuzzLink
from experiments.bench.gains import Gains
from experiments.bench.gpt_b import GptB
from experiments.bench.insert import Insert
from experiments.bench.linear import Linear
from experiments.bench.mar import Buckets
from experiments.bench.memory import Memory
from experiments.bench.official import Official
from experiments.bench.official_mar import OfficialMAR
from experiments.bench.reading import Reading
from experiments.bench.recorded import Recorded
from experiments.bench.round_parts import RoundParts
from experiments.bench.tpu_plans import TpuPlans
from experiments.engine.rows import row

JACOBI = row("sjd", "sjd, 7 drafts", window=7)
FURTHER = (
  row("speculative", "speculative, 7 drafts", gamma=7),
  row("speculative", "speculative, 7 drafts, block verification", gamma=7, verify="block"),
  row("block-head", "block head, 7 drafts", gamma=7),
  row("spatial", "spatial heads, 7 drafts", gamma=7),
  row("spatial", "spatial heads, 15 drafts", gamma=15),
  row("ngram", "copied tokens, 7 drafts", window=7),
  JACOBI,
  JACOBI.but(label="sjd, 7 drafts, block verification", verify="block"),
  JACOBI.but(label="sjd, 7 drafts, Gumbel drafts", recycle="gumbel"),
  JACOBI.but(label="sjd, 7 drafts, branches of 3", branch=3, depth=2),
)
OVER_BATCH = (
  *(row("speculative", f"speculative, gamma {gamma}", gamma=gamma) for gamma in (3, 7, "auto")),
  *(row("sjd", f"SJD, window {window}", window=window) for window in (7, "auto")),
)

TABLES = {
  "ciar_sizes": CiarSizes(title="What bounds CIAR over network size and link"),
  "codec": Codec(title="What writing and reading one drafted token costs"),
  "conversion": Conversion(title="What converting a published size takes"),
  "fuzz_link": FuzzLink(title="Hostile bytes to every reader of the link"),
  "gains": Gains(title="What methods gain over acceptance and batch"),
  "gains_l": Gains(
    title="What methods gain over acceptance and batch, GPT-L",
    model="llamagen-l",
    batches=(1, 8),
    acceptances=(0.5, 0.7, 0.9),
  ),
  "gains_further": Gains(
    title="What further methods gain at a published size",
    methods=FURTHER,
    batches=(1,),
    acceptances=(0.7,),
    lock_step=False,
  ),
  "gains_rows": Gains(
    title="What rows in parallel gain at a published size",
    methods=tuple(row("rows", f"rows, width {width}", width=width) for width in (8, 4)),
    tokens=256,
    batches=(1,),
    lock_step=False,
  ),
  "gains_batches": Gains(
    title="What methods with fixed and chosen lengths gain over the batch",
    methods=OVER_BATCH,
    tokens=36,
    batches=(1, 4, 16, 64),
    acceptances=(0.7,),
    lock_step=False,
  ),
  "gains_batches_l": Gains(
    title="What methods with fixed and chosen lengths gain over the batch, GPT-L",
    model="llamagen-l",
    methods=OVER_BATCH,
    tokens=36,
    batches=(1, 4, 16),
    acceptances=(0.7,),
    lock_step=False,
  ),
  "gpt_b": GptB(title="Plain decoding of GPT-B against eager PyTorch"),
  "insert": Insert(title="What the table of a server costs as it grows"),
  "linear": Linear(title="What each formulation of a linear layer streams"),
  "mar": Buckets(title="What cutting MAR's encoder off after the known tokens saves"),
  "memory": Memory(title="Peak memory of a conversion and of a decode"),
  "official": Official(title="Plain decoding beside the official LlamaGen code"),
  "official_mar": OfficialMAR(title="Parallel decoding beside the official MAR code"),
  "reading": Reading(title="What a server does with a frame before its network runs"),
  "recorded": Recorded(title="Recorded acceptance on random weights against the shipped networks"),
  "rounds": RoundParts(title="Where the time of a round goes"),
  "tpu_plans": TpuPlans(
    title="Decodes of published sizes, compiled for TPUs that are not there",
  ),
}

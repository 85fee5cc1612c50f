"""The digest of a small network's numerics as this process computes it; prints one JSON line.

XLA_FLAGS=--xla_cpu_max_isa=AVX python -m tests.server.probed
"""

import json

from jaxspec.link.sqs_wire import PlainWire
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.server.batches import Sizes
from jaxspec.server.kinds import StreamKind
from jaxspec.server.probe import probe
from jaxspec.server.programs import Programs
from tests.helpers import TARGET, random_params, side
from tests.server.crowds import EXAMPLE


def main() -> dict:
  """``numerics`` and whether rows are exact."""
  fns = llamagen_fns(TARGET)
  kinds = (StreamKind(PlainWire(TARGET.vocab_size)),)
  found = probe(Programs(side(random_params(fns, 2)), fns, kinds, Sizes(2, 2, 8, (8,)), EXAMPLE))
  return {"numerics": found.digest.hex(), "exact": found.is_exact}


if __name__ == "__main__":
  print(json.dumps(main()))

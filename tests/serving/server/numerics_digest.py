"""The digest of a small network's numerics as this process computes it; prints one JSON line.

XLA_FLAGS=--xla_cpu_max_isa=AVX python -m tests.serving.server.numerics_digest
"""

import json

from jaxspec.models.llamagen import llamagen_fns
from jaxspec.serving.server.determinism_check import check_determinism
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Sizes
from jaxspec.serving.wire.sqs_codec import PlainCodec
from tests.helpers import TARGET, random_params, side
from tests.serving.server.crowds import EXAMPLE


def main() -> dict:
  """``numerics`` and whether rows are exact."""
  fns = llamagen_fns(TARGET)
  profiles = (ServedProfile(PlainCodec(TARGET.vocab_size)),)
  found = check_determinism(Programs(side(random_params(fns, 2)), fns, profiles, Sizes(2, 2, 8, (8,)), EXAMPLE))
  return {"numerics": found.digest.hex(), "exact": found.is_exact}


if __name__ == "__main__":
  print(json.dumps(main()))

"""The target side in a process of its own: serves cases over stdin and stdout, one stream each.

Command::

    python -m tests.link.target_process markov:sqs-trimmed transformer:ciar-exact
"""

from __future__ import annotations

import os
import sys


def main() -> None:
  # What is printed must not come between the replies.
  replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
  os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

  import tests.conftest  # noqa: F401  settings of numerics, as in the tests
  from jaxspec.link.pipe import serve
  from tests.link.pairs import case_named

  for name in sys.argv[1:]:
    serve(case_named(name).target_endpoint(), sys.stdin.buffer, replies, max_streams=1)


if __name__ == "__main__":
  main()

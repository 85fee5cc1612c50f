"""A server of the toy engine in a separate process, to be killed.

Command::

    python -m tests.serving.server.toy_server 127.0.0.1:8443 [--tokens tokens.jsonl]
"""

from __future__ import annotations

import argparse
import sys


def main() -> int:
  from jaxspec.serving.server.bearer_tokens import TokenFile
  from jaxspec.serving.server.server import Listen, Server
  from tests.serving.edge.toy_engine import ToyEngine

  parser = argparse.ArgumentParser()
  parser.add_argument("listen")
  parser.add_argument("--tokens")
  options = parser.parse_args()
  tokens = TokenFile(options.tokens) if options.tokens else None
  server = Server(ToyEngine(step_s=0.002), Listen(options.listen), tokens=tokens)
  return server.run(lambda: print(server.address, flush=True))


if __name__ == "__main__":
  sys.exit(main())

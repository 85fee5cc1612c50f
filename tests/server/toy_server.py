"""A server of the toy engine in a process of its own, to be killed.

Command::

    python -m tests.server.toy_server 127.0.0.1:8443 [tokens.jsonl]
"""

from __future__ import annotations

import sys


def main() -> int:
  from jaxspec.server.server import Listen, Server
  from jaxspec.server.tokens import TokenFile
  from tests.link.toy_engine import ToyEngine

  tokens = TokenFile(sys.argv[2]) if len(sys.argv) > 2 else None
  server = Server(ToyEngine(step_s=0.002), Listen(sys.argv[1]), tokens=tokens)
  return server.run(lambda: print(server.address, flush=True))


if __name__ == "__main__":
  sys.exit(main())

"""``jaxspec studio``: a local web page that decodes in front of your eyes (extra ``studio``).

1. `asked` reads a request: what the page may send, with its limits.
2. `session` holds the loaded networks, describes them to the page, and turns a request into entrants.
3. `race` decodes the entrants, round by round, as a stream of events.
4. `desk` is the queue: one thread decodes, everybody else waits, and who leaves is forgotten.
5. `api` serves the page and the streams; `kept` holds finished races, and writes them into the chosen folder.
"""

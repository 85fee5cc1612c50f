"""``jaxspec studio``: a local web page that shows decoding round by round (extra ``studio``).

1. `schema` reads and checks a request of the page.
2. `studio_session` holds the loaded networks, describes them to the page, and makes entrants of a request.
3. `comparison` decodes the entrants round by round, as a stream of events.
4. `worker` is the queue: one thread decodes, and a cancelled request is removed.
5. `api` serves the page and the streams. `result_store` holds finished comparisons, and writes them into the chosen folder.
"""

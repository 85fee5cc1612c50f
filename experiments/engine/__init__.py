"""Common parts of all tables: cached decodes, timing, judges, Markdown.

- `experiment` is a table as a value, with the rows of `rows`; `bench` decodes them, once by `cache`, and times them.
- `scoring` has the judges: `scene_images`, `classes`. `statistics` and `claims` compare rows.
- `tables` renders the JSON as Markdown: `kinds` has the columns of every kind of table, `cells` the format of a cell.
"""

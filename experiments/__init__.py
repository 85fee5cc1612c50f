"""Tables, figures, trainings and data of the project: ``python -m experiments.run --list``.

- ``run``: the command line of every table;
- ``configs``: one file per subject, one value per table: which methods, which settings, how many images;
- ``engine``: decodes, times, judges, writes; what all tables share;
- ``bench``: programs that time or attack single parts of the library;
- ``server``: the server and the link to it, under faults, attacks and load;
- ``results``: figures as JSON and the tables made of them;
- ``train``, ``data``, ``figures``: scripts, each ``python -m experiments.train.NAME`` and so on.
"""

"""Tables, figures, trainings and data of the project: ``python -m experiments.run --list``.

- ``run``: the command line of every table;
- ``configs``: one file per subject, one value per table: methods, settings, number of images;
- ``papers``: tables and figures of the papers beside those here;
- ``engine``: decoding, timing, judging and writing, shared by all tables;
- ``bench``: benchmarks and attacks of single parts of the library;
- ``server``: the server and the link to it, under faults, attacks and load;
- ``results``: figures as JSON and the tables made of them;
- ``train``, ``data``, ``figures``: scripts, each ``python -m experiments.train.NAME`` and so on.
"""

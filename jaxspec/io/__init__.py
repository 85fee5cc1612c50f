"""Files and folders of networks, and the user's cache folder.

- `bundle` checks ``bundle.json``, `checkpoints` reads and writes the folder of one network, `shipped` lists the bundles of
  the package. `model_folders` turns an argument of the user into a checkpoint folder, with `hub` for names of the Hugging
  Face hub.
- `converters` lists the commands of ``jaxspec convert``. The names of parameters are mapped in ``conversion/``, one file for
  each family; `kept_conversions` keeps the results.
- `stored_files`, `tensor_files` and `whole_files` check and write single files. `text` has tokenizers and vocabularies.
"""

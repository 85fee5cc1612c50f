"""Settings of the documentation site: `sphinx-build -W -b html docs build/site`.

The pages are plain Markdown and a notebook, which read the same on a code host. What only the site has is made while it is
built, by the extensions in `_ext`: the order of the pages, links to files outside of this folder, the reference, and
pictures that follow the colours of the page.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import jaxspec  # noqa: E402

project = "jaxspec"
author = "the authors of jaxspec"
copyright = "the authors of jaxspec, Apache-2.0"
release = version = jaxspec.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "repository_pages", "reference_pages", "pictures"]
exclude_patterns = ["_ext"]
nitpicky = False

myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks have their outputs; a test executes them

default_role = "py:obj"  # docstrings name objects in single backquotes
add_module_names = False
python_maximum_signature_line_length = 88
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature has the types
napoleon_use_rtype = False

html_theme = "furo"
html_title = "jaxspec"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

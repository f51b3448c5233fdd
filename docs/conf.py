"""Settings of the documentation site, which `make docs` builds."""

import evaluator

project = "evaluator"
version = release = evaluator.__version__
copyright = "the authors of evaluator, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
]  # where they lie: links hold there too
exclude_patterns = [".venv*", "build", "dist", "runs", "tests", "evaluator", "kernels", "benchmarks"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures show them

html_theme = "furo"
html_title = "evaluator"
html_copy_source = False
html_show_sphinx = False

"""Python functions for notebooks and scripts: runs, comparisons and a scikit-learn classifier."""

"""Write the report of a run: one self-contained HTML page, made from the record and the tables of the run."""

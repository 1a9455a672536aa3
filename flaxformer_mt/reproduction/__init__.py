"""The paper's tables, row by row: configs, runs, result files, and the report."""

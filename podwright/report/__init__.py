"""What a run measured: result.json, plots, a page, and a section of a model's README."""

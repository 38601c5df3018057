"""ON THE ACCELERATOR: trainers that read recipe.json and write metrics, checkpoints and exit.json."""

"""What a step sees: lines, features, batches."""

"""What the real compiler says of a recipe's programs: memory, schedule, predicted time."""

"""What is trained on: questions with graded answers, and text as tokens."""

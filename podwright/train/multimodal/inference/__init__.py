"""What is done with a trained model: answers, evaluation, prediction, export."""

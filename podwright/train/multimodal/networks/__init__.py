"""The networks of Phase 1 and Phase 2: encoders, aligner, projector, language model."""

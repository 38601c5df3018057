"""THE LIFE OF A RUN: what is true of it (journal), what to do next (decide), doing it (drive)."""

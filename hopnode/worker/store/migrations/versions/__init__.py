"""One file a step, in order and forwards only; a step that was released is never edited."""
